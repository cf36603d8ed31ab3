"""Per-task FedAvg is FedAvg, run once among the clients of every task."""

from __future__ import annotations

from tests.helpers import tiny_member, unlike_federation, unlike_models_federation
from tests.values.by_hand import play

from consort.algorithms.fedavg import FedAvg
from consort.algorithms.fedavg_per_task import FedAvgPerTask
from consort.algorithms.local_only import LocalOnly
from consort.core.wire import encode
from consort.federation.federation import Federation
from consort.training.local import LocalTraining

LOCAL = LocalTraining(lr=0.2, batch=16)
TASKS = [{"tasks": {"colour": 3}}, {"tasks": {"shape": 4}}]


def only(federation, ids):
    return Federation({client: federation.members[client] for client in ids})


def assert_one_fedavg_per_group(federation, groups, folder):
    found = play(FedAvgPerTask(LOCAL), federation, folder / "all", rounds=3)
    assert found.server.models.keys() == {group[0] for group in groups}
    for group in groups:
        alone = play(FedAvg(LOCAL), only(federation, group), folder / group[0], rounds=3)
        assert encode(found.server.models[group[0]]) == encode(alone.server.model)
        scored = [row for row in found.rows if row.client in group and row.split]
        assert scored == [row for row in alone.rows if row.split]


def test_every_task_has_its_own_fedavg(tmp_path):
    groups = [("c0", "c2", "c4"), ("c1", "c3")]
    assert_one_fedavg_per_group(unlike_federation(*TASKS, clients=5), groups, tmp_path)


def test_so_has_every_architecture(tmp_path):
    groups = [("c0", "c2"), ("c1", "c3")]
    assert_one_fedavg_per_group(unlike_models_federation(), groups, tmp_path)


def test_one_client_alone_in_its_task_trains_alone(tmp_path):
    federation = Federation({"a": tiny_member("a"), "b": tiny_member("b", tasks={"colour": 3})})
    found = play(FedAvgPerTask(LOCAL), federation, tmp_path / "per_task", rounds=3)
    alone = play(LocalOnly(LOCAL), federation, tmp_path / "alone", rounds=3)
    for client in ("a", "b"):
        assert encode(found.server.models[client]) == encode(alone.states[client]["model"])
