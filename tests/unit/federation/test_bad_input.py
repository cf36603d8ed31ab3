"""What a user hands in by mistake is one sentence with the way out, before the first round."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
import torch
from torch import nn

from consort.algorithms.fedavg import FedAvg
from consort.algorithms.registry import find_algorithm
from consort.core.algorithm import on_client
from consort.core.messages import Replies
from consort.core.params import Params
from consort.data.examples import Examples, Splits
from consort.errors import ConsortError, UsageError
from consort.experiment.recipe import Recipe
from consort.federation.federation import Federation
from consort.federation.member import Member
from consort.models.registry import ModelSpec
from consort.run.run import Run
from consort.run.schedule import Schedule
from consort.tasks import Classification, Supervised
from consort.training.local import LocalTraining

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(20, 4, generator=GENERATOR)
Y = torch.arange(20) % 2


TWO = Classification(2)


def federation(inputs=X, labels=Y, model="mlp", task=TWO) -> Federation:
    good = Member.of({"sign": TWO}, "mlp", (X, Y))
    bad = Member.of({"sign": task}, model, (inputs, labels))
    return Federation({"bank-1": good, "bank-2": bad})


def refusal(**bad) -> str:
    clients = federation(**bad)
    with pytest.raises(UsageError) as caught:
        Run(clients, FedAvg(), Schedule(rounds=1)).go()
    return str(caught.value)


def spoilt(value: float) -> torch.Tensor:
    inputs = X.clone()
    inputs[[3, 7], 1] = value
    return inputs


def test_labels_from_one():
    assert refusal(labels=Y + 1) == (
        "client bank-2: task 'sign': labels are 1 to 2, but those of 2 classes are 0 to 1: "
        "subtract 1 from them"
    )


def test_more_labels_than_classes():
    assert refusal(labels=torch.arange(20) % 5) == (
        "client bank-2: task 'sign': labels are 0 to 4, but those of 2 classes are 0 to 1: set "
        "the number of classes to 5"
    )


def test_labels_that_are_no_whole_numbers():
    assert refusal(labels=Y.float()) == (
        "client bank-2: task 'sign': labels are float32, but classes are whole numbers: convert "
        "them to int64"
    )


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_inputs_that_are_not_finite(value):
    splits = Splits(*[Examples(spoilt(value), {"sign": Y})] * 3)
    member = Member.of({"sign": Classification(2)}, "mlp", splits)
    with pytest.raises(UsageError) as caught:
        Run(Federation({"bank-2": member}), FedAvg())
    assert str(caught.value) == (
        "client bank-2: its training inputs are not finite (NaN or infinite) in 2 of 20 examples, "
        "first in example 3: repair or remove these examples"
    )


def test_large_numbers_whose_sum_is_not_finite_are_fine():
    splits = Splits(*[Examples(X + 3e38, {"sign": Y})] * 3)
    member = Member.of({"sign": Classification(2)}, "mlp", splits)
    Run(Federation({"bank-2": member}), FedAvg())


def test_targets_that_are_not_finite():
    message = refusal(labels=X[:, 0] / 0 * 0, task=Supervised("mse_loss", outputs=1))
    assert message == (
        "client bank-2: task 'sign': targets are not finite (NaN or infinite): repair or remove "
        "them"
    )


def test_splits_of_different_width():
    train, test = Examples(X, {"sign": Y}), Examples(X[:, :3], {"sign": Y})
    member = Member.of({"sign": Classification(2)}, "mlp", Splits(train, train, test))
    with pytest.raises(UsageError) as caught:
        Run(Federation({"bank-2": member}), FedAvg())
    assert str(caught.value) == (
        "client bank-2: its test inputs have shape 3 (float32), and its training inputs 4 "
        "(float32): give all splits the same shape"
    )


def test_another_width_than_the_others():
    assert refusal(inputs=X[:, :3]).startswith(
        "this algorithm needs one whole model for all, but clients bank-1 and bank-2 differ in "
        "'encoder.layers.0.weight' (64x4 and 64x3): give all clients one architecture"
    )


def test_another_width_than_the_network_takes():
    network = nn.Sequential(nn.Linear(5, 3), nn.ReLU(), nn.Linear(3, 2))
    assert refusal(model=network) == (
        "client bank-2: model 'Sequential' does not accept inputs of shape 4 (float32): "
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (2x4 and 5x3)"
    )


def test_fewer_labels_than_inputs():
    with pytest.raises(UsageError) as caught:
        Examples(X, {"sign": Y[:19]})
    assert str(caught.value) == (
        "task 'sign' has 19 targets for 20 inputs: give every input one target"
    )
    with pytest.raises(UsageError, match="task 'target' has 19 targets for 20 inputs"):
        Member.of(Classification(2), "mlp", (X, Y[:19]))
    with pytest.raises(UsageError) as caught:
        Examples({"a": X, "b": X[:3]}, {"sign": Y})
    assert str(caught.value) == (
        "input 'b' has 3 rows, and the first input has 20: give every example one row of each"
    )


def test_a_network_in_the_place_of_a_name():
    network = nn.Linear(4, 2)
    assert ModelSpec.of({"name": network}).source is network  # in Python, it is the model
    with pytest.raises(UsageError) as caught:
        Recipe({"fedavg": {}}, clients=2, model={"name": nn.Linear})
    assert str(caught.value) == (
        "model.name is the object Linear where a name is expected: write its place, such as "
        "'file.py:Linear', or hand the network to Member.of"
    )
    with pytest.raises(UsageError, match=r"model\.name is the object Linear where a name is exp"):
        Recipe({"fedavg": {}}, clients=2, model=[{"name": network}])


def test_learning_rate_in_the_place_of_lr():
    known = "(there are: epochs, steps, batch, optimizer, "
    with pytest.raises(UsageError) as caught:
        LocalTraining(learning_rate=0.1)
    assert str(caught.value).startswith(
        f"local training has no setting 'learning_rate': did you mean 'lr'? {known}"
    )
    recipe = {"algorithms": {"fedavg": {}}, "clients": 2, "local": {"learning_rate": 0.1}}
    with pytest.raises(UsageError) as caught:
        Recipe(**recipe).algorithm("fedavg")
    assert str(caught.value).startswith(
        "unknown key algorithms.fedavg.local.learning_rate: 'learning_rate': did you mean 'lr'?"
    )


@dataclass(frozen=True)
class Careless(FedAvg):
    """Returns a state_dict where Params are expected, which shows in a round only."""

    @on_client
    def train(self, client, model):
        model.load_into(client.model)
        weights = client.model.state_dict()
        return {"model": weights, "examples": client.examples}


def test_a_state_dict_in_the_place_of_params():
    with pytest.raises(ConsortError) as caught:
        Run(federation(), Careless(), Schedule(rounds=1)).go()
    assert str(caught.value) == (
        "client bank-1 answered 'model' with a dict of tensors, such as a state_dict, but only "
        "Params have a mean: let it answer Params.of(client.model)"
    )


def test_the_mean_of_something_that_nobody_answered():
    replies = Replies({"bank-1": {"model": Params({}), "examples": 3}})
    with pytest.raises(UsageError) as caught:
        replies.mean("modle")
    assert str(caught.value) == (
        "the answer of client bank-1 has no 'modle': did you mean 'model'? (there are: model, "
        "examples)"
    )
    with pytest.raises(UsageError, match="client bank-1 answered 'examples' with a int, but only"):
        replies.mean("examples")
    with pytest.raises(UsageError, match="has no 'example': did you mean 'examples'"):
        replies.mean("model", weight="example")


def test_all_is_well_with_good_data():
    for name in ("fedavg", "local_only", "centralised"):
        Run(federation(), find_algorithm(name)(), Schedule(rounds=1)).go()
