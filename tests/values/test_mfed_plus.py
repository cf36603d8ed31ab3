"""M-Fed with the pull on the server, against its formulas and against per-task FedAvg."""

from __future__ import annotations

import pytest
import torch
from tests.contract.helpers import overhear
from tests.helpers import unlike_federation
from tests.values.by_hand import play

from consort.algorithms.fedavg_per_task import FedAvgPerTask
from consort.algorithms.mfed_plus import MFedPlus, Server, encoder, pulled
from consort.core.algorithm import Clients
from consort.core.params import Params, mean
from consort.core.wire import encode
from consort.engines.scripted import Scripted
from consort.training.local import LocalTraining

LOCAL = LocalTraining(lr=0.2, batch=16)
TASKS = [{"tasks": {"colour": 3}}, {"tasks": {"shape": 4}}]


def two_tasks(clients=4):
    return unlike_federation(*TASKS, clients=clients)


def model(value):
    return Params({"encoder.w": torch.tensor(value), "heads.t.w": torch.tensor([value[0]])})


def server(**changes):
    models = {"a": model([0.0, 0.0]), "b": model([4.0, 0.0]), "c": model([0.0, 8.0])}
    equal = {task: dict.fromkeys(models, 1.0) for task in models}
    usual = {"models": models, "affinities": equal, "pulls": dict.fromkeys(models, 0.5)}
    return Server(alike={c: c for c in models}, **(usual | changes))


@pytest.mark.parametrize("options", [{}, {"guard": False}])
def test_apart_and_without_a_pull_it_is_fedavg_per_task_bit_for_bit(options, tmp_path):
    off = play(
        MFedPlus(LOCAL, together=0.0, pull=0.0, **options), two_tasks(), tmp_path / "off", rounds=3
    )
    plain = play(FedAvgPerTask(LOCAL), two_tasks(), tmp_path / "plain", rounds=3)
    assert encode(off.server.models) == encode(plain.server.models)
    assert [r for r in off.rows if r.split] == [r for r in plain.rows if r.split]


def test_a_start_lies_between_the_own_encoder_and_the_mean_by_affinity():
    starts = pulled(server())
    torch.testing.assert_close(starts["a"]["encoder.w"], torch.tensor([2 / 3, 4 / 3]))
    assert starts["a"]["heads.t.w"].item() == 0.0
    alone = {"a": {"a": 1.0, "b": 1.0, "c": 0.0}}
    starts = pulled(server(affinities=server().affinities | alone))
    torch.testing.assert_close(starts["a"]["encoder.w"], torch.tensor([1.0, 0.0]))


def test_a_full_pull_makes_one_encoder():
    starts = pulled(server(pulls=dict.fromkeys("abc", 1.0)))
    expected = mean([encoder(m) for m in server().models.values()])
    for start in starts.values():
        torch.testing.assert_close(start["encoder.w"], expected["encoder.w"])


def round_of(algorithm, before, moves, setback=0.0):
    """A round in which clients move by what is given and report this setback."""

    def answer(call):
        move = Params({"encoder.w": torch.tensor(moves[call.client]), "heads.t.w": torch.zeros(1)})
        return {"model": call.payload["model"] + move, "examples": 1, "setback": setback}

    return algorithm.round(before, Clients(tuple(moves), 2, 5, 0, Scripted(answer), 3))


def test_at_first_all_tasks_have_one_encoder_that_moves_as_far_as_theirs():
    one = server(models={task: model([1.0, 1.0]) for task in "abc"})
    after = round_of(MFedPlus(together=0.4), one, {"a": [3.0, 0.0], "b": [0.0, 4.0]})
    direction = torch.tensor([3.0, 4.0]) / 5.0
    for task in "abc":
        moved = after.models[task]["encoder.w"] - torch.tensor([1.0, 1.0])
        torch.testing.assert_close(moved, 3.5 * direction)
    assert after.pulls == one.pulls
    later = round_of(MFedPlus(together=0.3), one, {"a": [3.0, 0.0], "b": [0.0, 4.0]})
    assert later.models["c"].equals(one.models["c"])
    unlike = round_of(MFedPlus(together=0.4, pull=0.0), server(), {"a": [3.0, 0.0]})
    assert unlike.models["b"].equals(server().models["b"])
    torch.testing.assert_close(later.models["a"]["encoder.w"], torch.tensor([4.0, 1.0]))


def test_affinities_are_cosines_of_moves_and_opposed_tasks_have_none():
    moves = {"a": [1.0, 0.0], "b": [3.0, 3.0], "c": [-1.0, 0.0]}
    found = round_of(MFedPlus(together=0.0), server(), moves).affinities
    assert found["a"] == pytest.approx({"a": 1.0, "b": 0.5**0.5, "c": 0.0}, abs=1e-6)
    assert found["b"]["c"] == 0.0
    kept = round_of(MFedPlus(together=0.0), server(), {"a": [1.0, 0.0], "b": [0.0, 2.0]}).affinities
    assert kept["a"] == pytest.approx({"a": 1.0, "b": 0.0, "c": 1.0})
    assert kept["c"] == server().affinities["c"]


def test_tasks_that_did_not_move_have_nothing_in_common():
    found = round_of(
        MFedPlus(together=0.0), server(), {"a": [0.0, 0.0], "b": [1.0, 0.0]}
    ).affinities
    assert found["a"]["a"] == 1.0
    assert found["a"]["b"] == 0.0


@pytest.mark.parametrize(("setback", "pull"), [(0.1, 0.05), (0.0, 0.2), (-1.0, 0.2)])
def test_the_pull_is_halved_where_the_start_is_worse_than_what_was_reached(setback, pull):
    start = server(pulls=dict.fromkeys("abc", 0.1))
    found = round_of(MFedPlus(together=0.0, pull=0.3), start, {"a": [1.0, 0.0]}, setback)
    assert found.pulls == pytest.approx({"a": pull, "b": 0.1, "c": 0.1})


def test_the_pull_grows_back_to_its_first_value_and_no_further():
    start = server(pulls=dict.fromkeys("abc", 0.25))
    assert round_of(MFedPlus(together=0.0, pull=0.3), start, {"a": [1.0, 0.0]}).pulls["a"] == 0.3


def test_clients_are_sent_one_model_and_tell_their_setback_from_the_second_round_on():
    exchanges, servers = overhear(MFedPlus(LOCAL, together=0.0), two_tasks(), rounds=2)
    trained = [e for e in exchanges if not e.call.evaluation]
    assert all(e.call.payload.keys() == {"model"} for e in trained)
    assert ["setback" in e.reply.content for e in trained] == [False] * 4 + [True] * 4
    starts = pulled(servers[1])
    for exchange in trained[4:]:
        task = servers[1].alike[exchange.call.client]
        assert exchange.call.payload["model"].equals(starts[task])
    _, free = overhear(MFedPlus(LOCAL, together=0.0, guard=False), two_tasks(), rounds=2)
    assert free[2].pulls == free[0].pulls
