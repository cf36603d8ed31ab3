"""Clients with other tasks, labels or models: an algorithm takes them, or says who differs."""

from __future__ import annotations

import pytest
from tests.contract.helpers import every_algorithm, finish, make, run_of
from tests.helpers import (
    TWO_TASKS,
    tiny_federation,
    two_task_federation,
    unlike_labels_federation,
    unlike_models_federation,
)

from consort.errors import ConsortError, UsageError

UNLIKE = [two_task_federation, unlike_labels_federation, unlike_models_federation]


def refusal(name, federation):
    """Why an algorithm does not take these clients; nothing if it does."""
    try:
        make(name).start(federation.roster)
    except UsageError as error:
        return str(error)
    return ""


@every_algorithm
@pytest.mark.parametrize("kind", UNLIKE)
def test_unlike_clients_work_or_two_of_them_are_named(name, kind, tmp_path):
    federation = kind(3)
    reason = refusal(name, federation)
    if reason:
        assert "c0 and c1" in reason
        with pytest.raises(UsageError):
            run_of(name, tmp_path, federation).go()
        return
    outcome = finish(run_of(name, tmp_path, federation))
    tested = {(row.client, row.task) for row in outcome.rows if row.split == "test"}
    assert tested == {
        (client, task) for client, tasks in federation.roster.tasks.items() for task in tasks
    }


@every_algorithm
def test_unlike_clients_get_on_in_workers_as_they_do_alone(name, tmp_path):
    federation = two_task_federation(3)
    if refusal(name, federation):
        federation = tiny_federation(3, tasks=TWO_TASKS)
    alone = finish(run_of(name, tmp_path / "1", federation, rounds=2))
    many = finish(run_of(name, tmp_path / "2", federation, rounds=2, workers=2))
    assert many.rows == alone.rows
    assert many.weights == alone.weights


def test_what_is_shared_decides_who_can_take_part():
    """The table of the documentation: which algorithm takes which kind of unlike clients."""
    whole = {
        "apfl",
        "centralised",
        "cfl",
        "ditto",
        "fedadagrad",
        "fedadam",
        "fedala",
        "fedamp",
        "fedavg",
        "fedavg_ft",
        "fedavgm",
        "feddbe",
        "feddyn",
        "fedfew",
        "fedfew_plus",
        "fedmgda",
        "fedmtl",
        "fednova",
        "fedpac",
        "fedprox",
        "fedrod",
        "fedyogi",
        "ifca",
        "moon",
        "per_fedavg",
        "pfedme",
        "qfedavg",
        "scaffold",
    }
    encoders = {"fedas", "fedavg_parts", "fedbabu", "fedhca2", "fedper", "fedrep", "fedsta"}
    encoders |= {"ditto_parts", "fedamp_parts", "fedhca2_plus", "matfl", "mfed", "mfed_plus"}
    encoders |= {"own_or_common"}
    for kind in UNLIKE:
        assert all(refusal(name, kind()) for name in whole)
    for name in ("feddf", "fedkd", "fml"):
        assert refusal(name, two_task_federation())
        assert refusal(name, unlike_labels_federation())
        assert not refusal(name, unlike_models_federation())
    for name in encoders:
        assert not refusal(name, two_task_federation())
        assert not refusal(name, unlike_labels_federation())
        assert refusal(name, unlike_models_federation())
    for name in ("fedavg_per_task", "local_only"):
        assert not any(refusal(name, kind()) for kind in UNLIKE)


@pytest.mark.parametrize("name", ["fedbabu", "fedrep"])
def test_a_model_without_an_encoder_to_train_is_named(name, tmp_path):
    run = run_of(name, tmp_path, tiny_federation(2, model={"name": "mlp", "hidden": []}))
    with pytest.raises(ConsortError, match=r"no parameters .* encoder"):
        run.go()


def test_the_pool_names_two_clients_that_differ(tmp_path):
    with pytest.raises(UsageError, match="c0 and c1"):
        run_of("centralised", tmp_path, two_task_federation(3)).go()
