from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from tests.contract.helpers import overhear
from tests.helpers import tiny_federation
from tests.values.by_hand import play

from consort.aggregation.pareto import all_choices, published_choices, sum_if_improved
from consort.algorithms._own_model import MODEL
from consort.algorithms.fedmh import FedMH, head_after
from consort.core.params import Params
from consort.data.examples import Examples, Splits
from consort.domains.signatures.tasks import Detection, Identification, identity
from consort.errors import UsageError
from consort.federation.federation import Federation
from consort.federation.member import Member
from consort.models.registry import ModelSpec
from consort.training.client import Client
from consort.training.local import LocalTraining
from consort.training.objectives import features_of, losses_of_features, task_losses
from consort.training.task_weighting import TaskSteps

LOCAL = LocalTraining(epochs=1, lr=0.1, batch=8)
USERS = 4


def signatures(seed, forged_only=False, size=24):
    generator = torch.Generator().manual_seed(seed)
    users = torch.randint(USERS, (size,), generator=generator)
    genuine = torch.randint(2, (size,), generator=generator) * (not forged_only)
    centres = torch.randn(USERS, 6, generator=torch.Generator().manual_seed(99))
    inputs = centres[users] + 0.3 * torch.randn(size, 6, generator=generator)
    inputs[:, 0] += genuine
    return Examples(inputs, {"identify": identity(users, genuine), "detect": genuine})


def bank(seed, hidden=5, **options):
    parts = Splits(signatures(seed, **options), signatures(seed + 50), signatures(seed + 90))
    model = ModelSpec.of({"name": "mlp", "hidden": [hidden, 3]})
    return Member.of({"identify": Identification(USERS), "detect": Detection()}, model, parts)


def banks(count=3):
    """Unlike encoders with three features each."""
    return Federation({f"c{n}": bank(n, hidden=4 + n) for n in range(count)})


def client_of(member):
    federation = Federation({"c0": member})
    model = federation.blueprint("c0").fresh()
    tasks, data = dict(member.tasks), federation.data("c0")
    return Client("c0", model, tasks, data, {}, torch.Generator().manual_seed(0), 1, 1)


def gradients_by_hand(client, batch):
    """By task: one gradient per parameter, by name."""
    named = dict(client.model.named_parameters())
    found = {}
    for task, loss in task_losses(client, batch).items():
        grads = torch.autograd.grad(
            loss, list(named.values()), allow_unused=True, retain_graph=True
        )
        pairs = zip(named.items(), grads, strict=True)
        found[task] = {n: torch.zeros_like(p) if g is None else g for (n, p), g in pairs}
    return found


def taken(steps, client, batch):
    names, params = zip(*client.model.named_parameters(), strict=True)
    grads = steps.gradients(steps.losses(client, batch), names, params)
    return dict(zip(names, grads, strict=True))


def flat(gradients):
    return torch.cat([g.flatten() for n, g in gradients.items() if n.startswith("encoder.")])


# The step


@pytest.mark.parametrize("weighting", ["exact", "features", "equal"])
@pytest.mark.parametrize("seed", range(3))
def test_a_step_is_that_of_the_weighted_loss(weighting, seed):
    client, batch = client_of(bank(seed)), signatures(seed)
    steps = TaskSteps(weighting)
    found = taken(steps, client, batch)
    (weights,) = steps.weights
    assert sum(weights.values()) == pytest.approx(1)
    losses = task_losses(client, batch)
    loss = sum(weights[task] * losses[task] for task in losses)
    named = dict(client.model.named_parameters())
    expected = torch.autograd.grad(loss, list(named.values()))
    for name, grad in zip(named, expected, strict=True):
        torch.testing.assert_close(found[name], grad, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("seed", range(5))
def test_the_exact_weight_is_the_best_of_a_grid_and_no_task_pays(seed):
    client, batch = client_of(bank(seed)), signatures(seed)
    by_task = {task: flat(grads) for task, grads in gradients_by_hand(client, batch).items()}
    steps = TaskSteps("exact")
    combined = flat(taken(steps, client, batch))
    grid = torch.linspace(0, 1, 2001)[:, None]
    lengths = ((1 - grid) * by_task["identify"] + grid * by_task["detect"]).norm(dim=1)
    assert combined.norm() <= lengths.min() + 1e-6
    assert steps.weights[0]["detect"] == pytest.approx(float(grid[lengths.argmin()]), abs=1e-3)
    for gradient in by_task.values():
        assert torch.dot(combined, gradient) >= combined.square().sum() - 1e-6


@pytest.mark.parametrize("weighting", ["exact", "features"])
def test_without_genuine_signatures_detection_has_all_the_weight(weighting):
    client, batch = client_of(bank(0)), signatures(0, forged_only=True)
    steps = TaskSteps(weighting)
    found = taken(steps, client, batch)
    assert steps.weights == [{"identify": 0.0, "detect": 1.0}]
    assert not found["heads.identify.weight"].any()
    assert found["heads.detect.0.weight"].any()


def test_tasks_one_by_one_are_two_trainings_with_one_loss_each():
    client, by_hand = client_of(bank(0)), client_of(bank(0))
    FedMH(local=LOCAL, one_by_one=True).train(client)
    for task in ("detect", "identify"):
        LOCAL.run(by_hand, objective=lambda c, b, task=task: {task: task_losses(c, b)[task]})
    found, expected = Params.of(client.model), Params.of(by_hand.model)
    for name in found:
        torch.testing.assert_close(found[name], expected[name], atol=1e-6, rtol=1e-5)


def test_without_any_gradient_all_tasks_weigh_the_same():
    steps = TaskSteps()
    assert steps._weigh({"a": [torch.zeros(3)], "b": [torch.zeros(3)]}) == {"a": 0.5, "b": 0.5}
    assert steps.mean_weights() == {}


# The choices


@pytest.mark.parametrize(("clients", "count"), [(1, 1), (2, 4), (3, 7), (4, 8), (5, 9), (20, 24)])
def test_the_number_of_published_choices(clients, count):
    choices = published_choices(clients)
    assert len(choices) == len(set(choices)) == count
    assert set(choices) <= set(all_choices(clients))


def test_the_order_of_the_published_choices():
    assert published_choices(3) == [(0, 0), (1, 1), (2, 2), (2, 0), (0, 2), (2, 1), (1, 2)]
    assert published_choices(5, first=1)[:4] == [(1, 1), (2, 2), (3, 3), (4, 4)]
    assert published_choices(4, tasks=1) == [(0,), (1,), (2,), (3,)]


@pytest.mark.parametrize(
    ("after", "good"),
    [
        ((0.9, 2.0), True),
        ((1.0, 1.5), True),
        ((1.0, 2.0), False),
        ((0.995, 1.99), False),
        ((0.5, 2.1), False),
        ((1.0 + 5e-7, 1.9), True),
        ((float("nan"), 1.0), False),
        ((float("-inf"), 1.0), False),
    ],
)
def test_a_choice_is_good_if_it_helps_and_hurts_nobody(after, good):
    assert sum_if_improved((1.0, 2.0), after) == (sum(after) if good else float("inf"))
    assert sum_if_improved((1.0, 2.0), after, significance=float("inf")) == float("inf")


def test_no_loss_is_computed_after_one_that_rises():
    asked = iter((1.1, 0.5))
    assert sum_if_improved((1.0, 2.0), asked) == float("inf")
    assert list(asked) == [0.5]


# The rounds


def losses_on(federation, client, model):
    member = federation.members[client]
    twin = federation.blueprint(client).fresh()
    model.load_into(twin)
    twin.eval()
    train = federation.data(client).train
    with torch.no_grad():
        outputs = twin(train.inputs)
    return {t: float(task.loss(outputs[t], train.targets[t])) for t, task in member.tasks.items()}


def trained_alone(federation, tmp_path, **options):
    return play(FedMH(LOCAL, search="none", **options), federation, tmp_path / "alone").states


@pytest.mark.parametrize("search", ["published", "all"])
@pytest.mark.parametrize("accept", ["first", "best"])
def test_the_search_keeps_encoders_and_raises_no_loss(search, accept, tmp_path):
    federation = banks()
    algorithm = FedMH(LOCAL, search=search, accept=accept)
    after = play(algorithm, federation, tmp_path / "searched").states
    before = trained_alone(federation, tmp_path)
    changed = 0
    for client in federation.client_ids:
        mine, alone = after[client][MODEL], before[client][MODEL]
        assert mine.only("encoder").equals(alone.only("encoder"))
        changed += not mine.equals(alone)
        old, new = (losses_on(federation, client, model) for model in (alone, mine))
        assert all(new[task] <= old[task] + 1e-5 for task in old)
    assert changed


def test_what_is_taken_over_is_what_a_literal_search_finds(tmp_path):
    federation = banks()
    states = trained_alone(federation, tmp_path)
    start = {c: federation.roster.model(c).without("encoder") for c in federation.client_ids}
    updates = [start[c] - states[c][MODEL].without("encoder") for c in federation.client_ids]
    sums = [updates[0], updates[0] + updates[1], updates[0] + updates[1] + updates[2]]
    outcome = play(FedMH(LOCAL), federation, tmp_path / "searched")
    for client in federation.client_ids:
        model = states[client][MODEL]
        before = list(losses_on(federation, client, model).values())
        expected = model
        for first, second in published_choices(3):
            tried = model | {
                name: model[name] - sums[first if "identify" in name else second][name]
                for name in sums[0]
            }
            after = losses_on(federation, client, tried).values()
            if sum_if_improved(before, after) < float("inf"):
                expected = tried
                break
        found = outcome.states[client][MODEL]
        assert max(float((found[n] - expected[n]).abs().max()) for n in expected) < 1e-6


class Literal(FedMH):
    """FedMH as printed: every choice is a model of its own, which sees all training data."""

    def losses(self, client, sums):
        heads = client.state[MODEL].without("encoder")

        @torch.inference_mode()
        def losses(choice):
            for task, prefix in zip(client.tasks, choice, strict=True):
                head_after(heads, sums, task, prefix).load_into(client.model)
            found = losses_of_features(client, features_of(client))
            return [loss.item() for loss in found.values()]

        return losses


@pytest.mark.parametrize("search", ["published", "all"])
def test_cached_features_change_nothing(search, tmp_path):
    outcomes = [
        play(kind(LOCAL, search=search), banks(), tmp_path / kind.__name__, rounds=2)
        for kind in (FedMH, Literal)
    ]
    for client, state in outcomes[0].states.items():
        assert state[MODEL].equals(outcomes[1].states[client][MODEL])


@pytest.mark.parametrize(
    ("kind", "search", "passes"),
    [
        (Literal, "published", 7 + 1),
        (Literal, "all", 9 + 1),
        (FedMH, "published", 1),
        (FedMH, "all", 1),
    ],
)
def test_a_literal_search_runs_the_whole_model_once_per_choice(kind, search, passes):
    client = client_of(bank(0))
    client.state[MODEL] = Params.of(client.model)
    seen = []
    client.model.encoder.register_forward_hook(lambda *_: seen.append(1))
    algorithm = kind(search=search, significance=float("inf"))
    taken = algorithm.take_over(client, [client.state[MODEL].without("encoder") * 0.1] * 3)
    assert set(taken["taken"].values()) == {-1}
    assert len(seen) == passes


def test_with_boundless_significance_nothing_is_taken_over(tmp_path):
    federation = banks()
    found = play(FedMH(LOCAL, significance=float("inf")), federation, tmp_path / "never").states
    for client, state in trained_alone(federation, tmp_path).items():
        assert found[client][MODEL].equals(state[MODEL])


def test_without_a_rate_there_is_nothing_to_take_over(tmp_path):
    federation = banks()
    outcome = play(FedMH(LocalTraining(lr=0.0)), federation, tmp_path, rounds=2)
    for client, state in outcome.states.items():
        assert state[MODEL].equals(federation.roster.model(client))
    assert {row.value for row in outcome.rows if row.metric == "updates_taken"} == {-1.0}


def test_sums_grow_by_one_client_at_a_time_and_only_heads_travel():
    exchanges, _ = overhear(FedMH(LOCAL), banks(), rounds=1)
    updates = [e.reply.content["update"] for e in exchanges if e.call.method == "train"]
    searches = [e.call.payload["sums"] for e in exchanges if e.call.method == "take_over"]
    assert len(searches) == 3
    for sums in searches:
        assert sums[0].equals(updates[0])
        for update, (less, more) in zip(updates[1:], pairwise(sums), strict=True):
            assert ((more - less) - update).norm() < 1e-6
            assert all(name.startswith("heads.") for name in more)


def test_heads_of_different_width_are_refused():
    members = {"a": bank(0), "b": bank(1)}
    wide = ModelSpec.of({"name": "mlp", "hidden": [5, 4]})
    members["b"] = Member(members["b"].tasks, wide, members["b"].example, members["b"].load)
    with pytest.raises(UsageError, match="clients a and b differ"):
        FedMH().start(Federation(members).roster)


def test_weights_and_choices_are_in_the_history(tmp_path):
    outcome = play(FedMH(LOCAL), banks(), tmp_path, rounds=2)
    noted = {
        (row.metric, row.round, row.client, row.part): row.value
        for row in outcome.rows
        if row.metric in ("task_weight", "updates_taken")
    }
    assert len(noted) == 2 * 2 * 3 * 2
    for round_ in (1, 2):
        for client in ("c0", "c1", "c2"):
            key = round_, client
            parts = [noted["task_weight", *key, task] for task in ("identify", "detect")]
            assert sum(parts) == pytest.approx(1)
            assert noted["updates_taken", *key, "detect"] in (-1, 0, 1, 2)


def test_it_learns_with_one_task_too(tmp_path):
    federation = tiny_federation(3)
    outcome = play(FedMH(LOCAL), federation, tmp_path, rounds=4)
    losses = [
        [row.value for row in outcome.rows if (row.metric, row.split, row.round) == key]
        for key in (("loss", "test", 1), ("loss", "test", 4))
    ]
    assert sum(losses[1]) < sum(losses[0])
    assert isinstance(outcome.states["c0"][MODEL], Params)
