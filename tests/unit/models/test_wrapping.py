"""Any network is a model: its heads are found or named, the rest is the encoder."""

from __future__ import annotations

import copy
from functools import partial

import pytest
import torch
from tests.helpers import ONE_TASK, TWO_TASKS, tiny_splits
from torch import nn
from torch.nn import functional as F

from consort.algorithms.registry import find_algorithm
from consort.core.params import Params
from consort.data.examples import Examples, Splits
from consort.errors import ConsortError, UsageError
from consort.federation.federation import Federation
from consort.federation.member import Member
from consort.models.registry import ModelSpec, build
from consort.run.run import Run
from consort.run.schedule import Schedule
from consort.tasks import Classification
from consort.training.local import LocalTraining

EXAMPLE = torch.rand(8, generator=torch.Generator().manual_seed(3))
BATCH = torch.rand(5, 8, generator=torch.Generator().manual_seed(4))
THREE = {"classify": Classification(3)}
TWO = {"colour": Classification(3), "shape": Classification(4)}


class Net(nn.Module):
    """What a researcher has: logits out of the last linear layer."""

    def __init__(self, hidden: int = 6, classes: int = 3) -> None:
        super().__init__()
        self.body = nn.Linear(8, hidden)
        self.fc = nn.Linear(hidden, classes)

    def forward(self, x):
        return self.fc(self.body(x).relu())


class InDict(Net):
    def forward(self, x):
        hidden = self.body(x).relu()
        return {"hidden": hidden, "logits": self.fc(hidden)}


class InTuple(Net):
    def forward(self, x):
        hidden = self.body(x).relu()
        return self.fc(hidden), hidden


class Features(nn.Module):
    """Returns features: there is no head."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(8, 5)

    def forward(self, x):
        return self.body(x).tanh()


class TwoHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(8, 6)
        self.fc_a, self.fc_b = nn.Linear(6, 3), nn.Linear(6, 4)

    def forward(self, x):
        hidden = self.body(x).relu()
        return {"colour": self.fc_a(hidden), "shape": self.fc_b(hidden)}


class Softmax(Net):
    def forward(self, x):
        return F.log_softmax(super().forward(x), 1)


class Viewing(nn.Module):
    """A convolution and `view`, which refuses images with channels last."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.fc = nn.Conv2d(3, 4, 3), nn.Linear(4 * 4, 3)

    def forward(self, x):
        x = self.conv(x).relu()
        return self.fc(x.view(x.size(0), -1))


def built(model, tasks=THREE, example=EXAMPLE, seed=0, **options):
    return build(ModelSpec.of(model, **options), tasks, example, seed)


# What is head and what is encoder


@pytest.mark.parametrize("kind", [Net, InDict, InTuple])
def test_the_last_linear_layer_is_the_head(kind):
    network = kind()
    model = built(network)
    head = Params.of(model).only("heads")
    assert list(head) == ["heads.classify.weight", "heads.classify.bias"]
    assert torch.equal(head["heads.classify.weight"], network.fc.weight)
    assert not any("fc" in name for name in Params.of(model))
    expected = network(BATCH)
    logits = {Net: lambda: expected, InDict: lambda: expected["logits"]}.get(
        kind, lambda: expected[0]
    )()
    torch.testing.assert_close(model(BATCH)["classify"], logits)
    assert model.encoder.width == model.encoder(BATCH).shape[1] == 6


def test_a_plain_network_keeps_its_names_and_is_called_as_it_is():
    model = built(Net())
    assert type(model.encoder) is Net
    assert list(Params.of(model))[:2] == ["encoder.body.weight", "encoder.body.bias"]


def test_a_network_that_returns_features_gets_the_heads_of_its_tasks():
    model = built(Features, TWO)
    shapes = Params.of(model).shapes
    assert shapes["heads.colour.weight"] == (3, 5)
    assert shapes["heads.shape.weight"] == (4, 5)
    assert shapes["encoder.body.weight"] == (5, 8)


def test_the_same_head_is_drawn_whatever_stands_before_it():
    own, other = built(Features, TWO), built(Features, {"shape": Classification(4)})
    assert torch.equal(own.heads["shape"].weight, other.heads["shape"].weight)


@pytest.mark.parametrize("options", [{}, {"heads": {"colour": "fc_a", "shape": "fc_b"}}])
def test_several_tasks_on_one_network(options):
    network = TwoHeads()
    model = built(network, TWO, **options)
    assert torch.equal(model.heads["colour"].weight, network.fc_a.weight)
    assert torch.equal(model.heads["shape"].weight, network.fc_b.weight)
    for task, output in network(BATCH).items():
        torch.testing.assert_close(model(BATCH)[task], output)


def test_a_client_with_one_of_the_tasks_has_one_of_the_heads():
    heads = {"colour": "fc_a", "shape": "fc_b"}
    model = built(TwoHeads, {"shape": Classification(4)}, heads=heads)
    assert list(model.heads) == ["shape"]
    assert model.heads["shape"].weight.shape == (4, 6)


def test_a_named_head_may_be_any_layer():
    network = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Sequential(nn.Tanh(), nn.Linear(6, 3)))
    model = built(network, head="2")
    assert list(Params.of(model).only("heads")) == [
        "heads.classify.1.weight", "heads.classify.1.bias",
    ]  # fmt: skip
    torch.testing.assert_close(model(BATCH)["classify"], network(BATCH))


def test_a_named_head_of_another_size_is_replaced_by_the_task():
    model = built(Net(classes=1000), head="fc")
    assert model.heads["classify"].weight.shape == (3, 6)


def test_with_head_false_the_whole_network_is_the_encoder():
    model = built(Net, head=False)
    assert Params.of(model).shapes["encoder.fc.weight"] == (3, 6)
    assert Params.of(model).shapes["heads.classify.weight"] == (3, 3)


def test_softmax_regression_is_a_head_alone():
    network = nn.Linear(8, 3)
    model = built(network)
    assert list(Params.of(model)) == ["heads.classify.weight", "heads.classify.bias"]
    torch.testing.assert_close(model(BATCH)["classify"], network(BATCH))


class Price:
    """Regression: one number per example."""

    metric, higher_is_better = "loss", False

    def head(self, features):
        return nn.Sequential(nn.Linear(features, 1), nn.Flatten(0))


class Squeezed(Net):
    def forward(self, x):
        return super().forward(x).squeeze(-1)


@pytest.mark.parametrize("kind", [Net, Squeezed])
def test_one_number_per_example_is_one_number(kind):
    network = kind(classes=1)
    model = built(network, {"price": Price()})
    assert model(BATCH)["price"].shape == (5,)
    torch.testing.assert_close(model(BATCH)["price"], network(BATCH).flatten())


def test_named_inputs_reach_parameters_of_these_names_or_come_as_a_dict():
    class Named(Net):
        def forward(self, left, right):
            return super().forward(left + right)

    class Whole(Net):
        def forward(self, batch):
            return super().forward(batch["left"] + batch["right"])

    example = {"left": EXAMPLE, "right": EXAMPLE * 2}
    for kind in (Named, Whole):
        network = kind()
        model = built(network, example=example)
        inputs = {"left": BATCH, "right": BATCH * 2}
        expected = network(**inputs) if kind is Named else network(inputs)
        torch.testing.assert_close(model(inputs)["classify"], expected)


# Initial weights


def test_a_class_is_built_under_the_seed():
    one, same, other = (Params.of(built(Net, seed=seed)) for seed in (1, 1, 2))
    assert one.equals(same)
    assert not one.equals(other)
    state = torch.get_rng_state()
    built(partial(Net, 4))
    assert torch.equal(torch.get_rng_state(), state)


def test_lazy_layers_are_drawn_under_the_seed():
    def lazy():
        return nn.Sequential(nn.LazyLinear(6), nn.ReLU(), nn.LazyLinear(3))

    one, same, other = (Params.of(built(lazy, seed=seed)) for seed in (1, 1, 2))
    assert one.equals(same)
    assert not one.equals(other)


def test_an_instance_keeps_its_weights_and_is_never_changed():
    network = Net().eval()
    before = copy.deepcopy(network.state_dict())
    model = built(network, seed=5)
    assert torch.equal(model.encoder.body.weight, network.body.weight)
    assert model.training
    assert all(module.training for module in model.modules())
    with torch.no_grad():
        model.encoder.body.weight.zero_()
    assert isinstance(network.fc, nn.Linear)
    assert not network.training
    assert all(torch.equal(before[name], value) for name, value in network.state_dict().items())


def test_options_are_passed_on_and_equal_specs_are_equal():
    spec = ModelSpec.of(Net, hidden=4)
    assert spec == ModelSpec.of({"name": Net, "hidden": 4}) != ModelSpec.of(Net)
    assert hash(spec) == hash(ModelSpec.of(Net, hidden=4))
    assert str(spec) == "Net(hidden=4, classes=3)"
    assert Params.of(build(spec, THREE, EXAMPLE, 0)).shapes["encoder.body.weight"] == (4, 8)


def test_a_first_parameter_without_default_receives_an_example():
    def make(example, hidden: int = 4):
        return nn.Sequential(nn.Linear(len(example), hidden), nn.Linear(hidden, 3))

    assert Params.of(built(make)).shapes["encoder.0.weight"] == (4, 8)


def test_options_behind_two_stars_are_accepted():
    def make(**options):
        return Net(**options)

    assert Params.of(built(make, hidden=2)).shapes["encoder.body.weight"] == (2, 8)


# Federations


def member(name, model, tasks=ONE_TASK):
    return Member.of({t: Classification(n) for t, n in tasks.items()}, model, tiny_splits(name))


@pytest.mark.parametrize("name", ["fedavg", "fedper", "lg_fedavg", "fedrep", "fedhca2", "ditto"])
def test_algorithms_train_networks(name):
    network = Net()
    federation = Federation({c: member(c, network) for c in ("a", "b", "c")})
    run = Run(federation, find_algorithm(name)(local=LocalTraining(lr=0.3)), Schedule(rounds=8))
    history = run.go()
    scores = [row.value for row in history if row.metric == "accuracy" and row.split == "test"]
    assert sum(scores[-3:]) / 3 > 0.55


def test_fedper_keeps_the_heads_of_a_network_at_home():
    federation = Federation({c: member(c, Net) for c in ("a", "b")})
    history = Run(federation, find_algorithm("fedper")(), Schedule(rounds=1)).go()
    roles = {row.part for row in history if row.metric == "bytes_up"}
    assert roles == {"encoder"}
    sizes = [row.value for row in history if row.metric == "bytes_up"]
    assert sizes == [4 * (8 * 6 + 6)] * 2


def test_one_instance_per_client_can_be_averaged():
    federation = Federation({c: member(c, Net()) for c in ("a", "b")})
    Run(federation, find_algorithm("fedavg")(), Schedule(rounds=1)).go()


def test_a_network_for_two_tasks_in_fedhca2():
    splits = tiny_splits("a", tasks=TWO_TASKS)
    federation = Federation({c: Member.of(TWO, TwoHeads, splits) for c in ("a", "b")})
    Run(federation, find_algorithm("fedhca2")(), Schedule(rounds=2)).go()


@pytest.mark.parametrize("laid_out", [True, False])
def test_a_network_that_calls_view_is_given_plain_images(laid_out):
    images = torch.rand(12, 3, 4, 4)
    kind = (
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(16, 3)) if laid_out else Viewing
    )
    examples = Examples(images, {"classify": torch.arange(12) % 3})
    federation = Federation({"a": Member.of(THREE, kind, Splits(examples, examples, examples))})
    assert federation.data("a").train.tensor.is_contiguous() is not laid_out
    Run(federation, find_algorithm("fedavg")(), Schedule(rounds=1)).go()


def test_other_initial_weights_of_a_class_can_be_drawn_but_not_of_an_instance():
    ifca = find_algorithm("ifca")(clusters=2)
    drawn = ifca.start(Federation({c: member(c, Net) for c in ("a", "b")}).roster)
    assert not drawn.models[0].equals(drawn.models[1])
    network = Net()
    run = Run(Federation({c: member(c, network) for c in ("a", "b")}), ifca)
    with pytest.raises(UsageError) as caught:
        run.algorithm.start(run.federation.roster)
    assert str(caught.value) == (
        "client a: model 'Net' is a network with weights, but this algorithm starts from several "
        "sets of weights: hand in its class, or a function that makes it"
    )


# What is refused


def refusal(*arguments, **options) -> str:
    with pytest.raises(UsageError) as caught:
        built(*arguments, **options)
    return str(caught.value)


def test_a_network_that_changes_what_its_head_returns_is_refused():
    assert refusal(Softmax, head="fc") == (
        "model 'Softmax' changes what its head 'fc' returns, such as by a softmax: let it return "
        "the head's outputs as they are"
    )


def test_a_layer_that_is_not_there_is_refused_with_the_nearest_name():
    assert refusal(Net, head="fcc") == (
        "model 'Net' has no layer 'fcc': did you mean 'fc'? (there are: body, fc)"
    )


def test_inputs_that_the_network_does_not_take_are_named():
    assert refusal(Net, example=torch.rand(9)) == (
        "model 'Net' does not accept inputs of shape 9 (float32): RuntimeError: mat1 and mat2 "
        "shapes cannot be multiplied (2x9 and 8x6)"
    )


def test_one_head_for_two_tasks_is_refused():
    assert refusal(TwoHeads, TWO, head="fc_a") == (
        "model 'TwoHeads': head = 'fc_a' names one head for the tasks colour, shape: name one for "
        "each, such as heads = { colour = 'fc_a' }"
    )


def test_heads_with_different_features_are_refused():
    class Branched(TwoHeads):
        def forward(self, x):
            hidden = self.body(x)
            return {"colour": self.fc_a(hidden.relu()), "shape": self.fc_b(hidden.tanh())}

    assert refusal(Branched, TWO) == (
        "model 'Branched': its heads 'fc_a' and 'fc_b' receive different features: name the layers "
        "at which the network branches"
    )


def test_a_head_that_shares_weights_is_refused():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(3, 4)
            self.out = nn.Linear(4, 3, bias=False)
            self.out.weight = self.words.weight

        def forward(self, ids):
            return self.out(self.words(ids).mean(1))

    assert refusal(Tied, example=torch.tensor([0, 1, 2])) == (
        "model 'Tied': its head 'out' shares its weights with 'words.weight': name another head, "
        "or give the head weights of its own"
    )


def test_maps_are_refused_as_features():
    assert refusal(nn.Conv2d(3, 4, 3), example=torch.rand(3, 6, 6)) == (
        "model 'Conv2d' returns features of shape 4x4x4 (float32) for an example: let it return "
        "one vector per example, or name its head, such as head = 'fc'"
    )


@pytest.mark.parametrize(("model", "options", "message"), [
    (Net, {"head": 3}, "model 'Net': head = 3 is not the name of a layer, such as 'fc'"),
    (Net, {"head": "fc", "heads": {}}, "model 'Net': give head or heads, not both"),
    (Net, {"heads": "fc"}, "model 'Net': write heads as { task = 'layer' }"),
    (Net(), {"hidden": 3}, "model 'Net' is already built: it takes no option 'hidden'"),
    (Net, {"hiden": 3},
     "model 'Net' has no option 'hiden': did you mean 'hidden'? (there are: hidden, classes)"),
])  # fmt: skip
def test_wrong_options_are_one_sentence(model, options, message):
    with pytest.raises(UsageError) as caught:
        ModelSpec.of(model, **options)
    assert str(caught.value) == message


def test_what_makes_no_network_is_named():
    assert refusal(lambda: 3) == ("<lambda> returns a int where an nn.Module is expected")

    def needy(classes):
        return nn.Linear(8, classes)

    message = refusal(needy)
    assert message.startswith(
        "model 'needy' cannot be built for inputs of shape 8 (float32): its first parameter "
        "'classes' received an example of the data, because it has no default and is not set as "
        "an option (TypeError: "
    )


# Frozen parameters


def test_frozen_parameters_are_neither_sent_nor_trained():
    network = Net()
    network.body.requires_grad_(False)
    federation = Federation({c: member(c, network) for c in ("a", "b")})
    assert list(federation.initial("a")) == ["heads.classify.weight", "heads.classify.bias"]
    run = Run(federation, find_algorithm("fedavg")(), Schedule(rounds=2))
    sent = {row.value for row in run.go() if row.metric == "bytes_up"}
    assert sent == {4 * (6 * 3 + 3)}
    trained = federation.blueprint("a").model
    assert torch.equal(trained.encoder.body.weight, network.body.weight)
    assert not trained.encoder.body.weight.requires_grad


def test_an_algorithm_without_anything_to_share_says_so():
    network = Net()
    network.body.requires_grad_(False)
    federation = Federation({c: member(c, network) for c in ("a", "b")})
    run = Run(federation, find_algorithm("fedrep")(), Schedule(rounds=1))
    with pytest.raises(ConsortError, match="no parameters to train in encoder"):
        run.go()
