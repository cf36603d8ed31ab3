"""M-Fed against its formulas, per-task FedAvg, finite differences and a quadratic."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch
from tests.contract.helpers import overhear
from tests.helpers import tiny_member, unlike_federation
from tests.values.by_hand import play

from consort.algorithms.fedavg_per_task import FedAvgPerTask
from consort.algorithms.local_only import LocalOnly
from consort.algorithms.mfed import MFed, unit_pull_towards
from consort.core.algorithm import Clients
from consort.core.params import Params, mean
from consort.core.wire import encode
from consort.engines.scripted import Scripted
from consort.errors import UsageError
from consort.federation.federation import Federation
from consort.training.local import LocalTraining
from consort.training.objectives import pull_towards
from consort.training.optimizers import make_optimizer

LOCAL = LocalTraining(lr=0.2, batch=16)
OFF = {"first_strength": 0.0, "last_strength": 0.0}
TASKS = [{"tasks": {"colour": 3}}, {"tasks": {"shape": 4}}]


def two_tasks(clients=5):
    return unlike_federation(*TASKS, clients=clients)


@pytest.mark.parametrize("pull", ["norm", "squared"])
def test_without_a_pull_it_is_fedavg_per_task_bit_for_bit(pull, tmp_path):
    off = play(MFed(LOCAL, pull=pull, **OFF), two_tasks(), tmp_path / "off", rounds=3)
    plain = play(FedAvgPerTask(LOCAL), two_tasks(), tmp_path / "plain", rounds=3)
    assert encode(off.server.models) == encode(plain.server.models)
    assert [r for r in off.rows if r.split] == [r for r in plain.rows if r.split]


def test_one_client_without_a_pull_trains_alone(tmp_path):
    federation = Federation({"a": tiny_member("a")})
    off = play(MFed(LOCAL, **OFF), federation, tmp_path / "off", rounds=3)
    alone = play(LocalOnly(LOCAL), federation, tmp_path / "alone", rounds=3)
    assert encode(off.server.models["a"]) == encode(alone.states["a"]["model"])


def test_a_round_ends_with_means_inside_tasks_and_a_plain_mean_over_tasks():
    exchanges, servers = overhear(MFed(LOCAL), two_tasks(), rounds=1)
    sent = {e.call.client: e.reply.content for e in exchanges if not e.call.evaluation}
    for first, group in {"c0": ("c0", "c2", "c4"), "c1": ("c1", "c3")}.items():
        models = [sent[client]["model"] for client in group]
        expected = mean(models, [sent[client]["examples"] for client in group])
        assert servers[1].models[first].equals(expected)
    encoders = [model.only("encoder") for model in servers[1].models.values()]
    assert servers[1].encoder.equals(mean(encoders))


def test_the_number_of_clients_of_a_task_does_not_count_in_the_global_encoder():
    """Three clients with the same data as one make the same model of their task."""
    member, other = tiny_member("a"), tiny_member("b", tasks={"colour": 3})
    whole = replace(LOCAL, batch=64)
    few = Federation({"a": member, "z": other})
    many = Federation({"a": member, "b": member, "c": member, "z": other})
    _, one = overhear(MFed(whole), few, rounds=1)
    _, three = overhear(MFed(whole), many, rounds=1)
    for name, tensor in one[1].encoder.items():
        torch.testing.assert_close(three[1].encoder[name], tensor)


def penalty(point, anchor, mode):
    distance = (point - anchor).norm()
    return distance if mode == "norm" else 0.5 * distance**2


@pytest.mark.parametrize("mode", ["norm", "squared"])
def test_the_pull_is_the_gradient_of_the_penalty(mode):
    generator = torch.Generator().manual_seed(0)
    anchor = torch.randn(5, generator=generator).double()
    point = torch.randn(5, generator=generator).double()
    make = unit_pull_towards if mode == "norm" else pull_towards
    adjust = make(Params({"encoder.w": anchor[:3], "encoder.b": anchor[3:]}), 0.7)
    names, values = ["encoder.w", "heads.h", "encoder.b"], [point[:3], point[:1], point[3:]]
    w, h, b = adjust(
        names, values, [torch.zeros(3).double(), torch.ones(1), torch.zeros(2).double()]
    )
    found = torch.cat([w, b])
    steps = torch.eye(5).double() * 1e-6
    slopes = [
        0.7 * (penalty(point + s, anchor, mode) - penalty(point - s, anchor, mode)) / 2e-6
        for s in steps
    ]
    torch.testing.assert_close(found, torch.stack(slopes), atol=1e-8, rtol=1e-6)
    assert h.tolist() == [1.0]
    if mode == "norm":
        assert float(found.norm()) == pytest.approx(0.7)


@pytest.mark.parametrize("make", [unit_pull_towards, pull_towards])
def test_there_is_no_pull_at_the_global_encoder_itself(make):
    anchor = torch.randn(4)
    (grad,) = make(Params({"encoder.w": anchor}), 3.0)(["encoder.w"], [anchor], [torch.ones(4)])
    assert grad.tolist() == [1.0] * 4


def test_a_strong_squared_pull_on_a_quadratic_ends_at_the_closed_form():
    hessian, best = torch.diag(torch.tensor([1.0, 2.0, 4.0])), torch.tensor([1.0, -1.0, 2.0])
    anchor, point = torch.tensor([0.5, 0.5, 0.5]), torch.zeros(3)
    adjust, optimizer = pull_towards(Params({"encoder.w": anchor}), 3.0), make_optimizer("sgd")
    for _ in range(300):
        slope = hessian @ (point - best)
        optimizer.step([point], list(adjust(["encoder.w"], [point], [slope])), 0.1)
    right = hessian @ best + 3.0 * anchor
    expected = torch.linalg.solve(hessian + 3.0 * torch.eye(3), right)
    torch.testing.assert_close(point, expected, atol=1e-6, rtol=0)


def test_the_strength_grows_geometrically_and_its_ends_are_exact():
    algorithm = MFed(first_strength=1e-4, last_strength=1e-2, growing_rounds=20)
    strengths = [algorithm.strength(round_) for round_ in range(1, 23)]
    ratios = [b / a for a, b in pairwise(strengths[:20])]
    assert ratios == pytest.approx([100 ** (1 / 19)] * 19)
    assert (strengths[0], strengths[19], strengths[21]) == (1e-4, 1e-2, 1e-2)
    assert MFed(growing_rounds=1).strength(1) == 1e-4


def test_a_squared_pull_never_goes_past_the_global_encoder():
    """A strength of 1000 at rate 0.2 becomes 2.5, so that a step halves the distance."""
    algorithm = MFed(LOCAL, pull="squared", first_strength=1e3, last_strength=1e3)
    client = SimpleNamespace(round=1, rounds=5, state={})
    adjust = algorithm.penalty(client, Params({"encoder.w": torch.zeros(2)}))
    (grad,) = adjust(["encoder.w"], [torch.ones(2)], [torch.zeros(2)])
    assert (1 - 0.2 * grad).tolist() == pytest.approx([0.5, 0.5])


def test_stronger_pulls_bring_the_tasks_nearer_together(tmp_path):
    gaps = []
    for strength in (0.0, 0.3, 3.0):
        algorithm = MFed(LOCAL, "squared", first_strength=strength, last_strength=strength)
        server = play(algorithm, two_tasks(), tmp_path / str(strength), rounds=6).server
        one, other = (server.models[first].only("encoder") for first in ("c0", "c1"))
        gaps.append((one - other).norm())
    assert gaps[0] > gaps[1] > gaps[2]


def test_tasks_without_clients_in_a_round_keep_their_model_and_still_count():
    algorithm, federation = MFed(LOCAL), two_tasks(2)
    _, servers = overhear(algorithm, federation, rounds=1)
    engine = Scripted(lambda call: {"model": call.payload["model"] * 2.0, "examples": 1})
    after = algorithm.round(servers[1], Clients(("c0",), 2, 5, 0, engine, 2))
    assert after.models["c1"].equals(servers[1].models["c1"])
    encoders = [after.models[first].only("encoder") for first in ("c0", "c1")]
    assert after.encoder.equals(mean(encoders))


def test_heads_of_a_task_change_nothing_for_another():
    algorithm = MFed(LOCAL)
    _, servers = overhear(algorithm, two_tasks(2), rounds=1)

    def after(factor):
        def answer(call):
            model = call.payload["model"]
            heads = model.only("heads") * (factor if call.client == "c1" else 1.0)
            return {"model": model | heads, "examples": 1}

        return algorithm.round(servers[1], Clients(("c0", "c1"), 2, 5, 0, Scripted(answer), 2))

    one, other = after(1.0), after(2.0)
    assert other.models["c0"].equals(one.models["c0"])
    assert other.encoder.equals(one.encoder)
    assert not other.models["c1"].equals(one.models["c1"])


def test_one_strength_of_zero_is_refused():
    with pytest.raises(UsageError, match="both"):
        MFed(first_strength=0.0)
