"""Groups whose clients train in their own way: `local` of a group."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.helpers import assert_same
from tests.unit.experiment.test_assembly import numbers
from tests.unit.training.test_cohort import LOCAL, companies, federation, outcome

from consort.algorithms.fedavg import FedAvg
from consort.core.messages import Call
from consort.core.sealed import write_json
from consort.deployment.enrolment import Candidate, Enrolment
from consort.deployment.study import Study
from consort.engines.choice import EngineChoice
from consort.engines.host import ClientHost
from consort.engines.states import StateStore
from consort.errors import UsageError
from consort.experiment.assembly import assemble
from consort.experiment.loading import recipe_of
from consort.experiment.preparation import prepare_run, reassemble
from consort.experiment.recipe import Recipe
from consort.federation.federation import EVERYONE
from consort.protection.dp import Privacy
from consort.training.local import LocalTraining

SHORT = {"rounds": 2, "tuning_epochs": 1}
OWN = {"epochs": 3, "lr": 0.05}


def recipe(local: Any = OWN, **changes: Any) -> Recipe:
    """Two clients as the recipe says, and two that train in their own way."""
    table = {
        "groups": [
            {"name": "plain", "count": 2},
            {"name": "slow", "count": 2, "local": local},
        ],
        "data": {"name": "synthetic_vectors", "classes": 4, "examples": 160, "features": 6},
        "model": {"name": "mlp", "hidden": [8]},
        "run": {"rounds": 2},
        "local": {"lr": 0.1, "batch": 8},
        "algorithms": {"fedavg": {}, "ditto": {}},
    }
    return recipe_of({**table, **changes}, "tiny.toml")


def trained(made: Any, algorithm: Any) -> dict[str, Any]:
    """What every client answers in the first round."""
    host = ClientHost(made, algorithm, 0, 2, StateStore())
    model = host.federation.roster.shared()
    calls = [Call(client, "train", 1, 0, 0, {"model": model}) for client in made.client_ids]
    return {call.client: host.answer([call])[0].content for call in calls}


def test_clients_of_the_group_train_as_if_everybody_did_and_the_others_as_ever():
    plain, own = LocalTraining(lr=0.1, batch=8), LocalTraining(epochs=3, lr=0.05, batch=8)
    given, none = recipe(), recipe({})
    found = trained(assemble(given, 0, None).federation, given.algorithm("fedavg"))
    without = assemble(none, 0, None).federation
    ever, always = trained(without, FedAvg(plain)), trained(without, FedAvg(own))
    for number in (0, 1):
        assert_same(found[f"plain-{number}"], ever[f"plain-{number}"])
        assert_same(found[f"slow-{number}"], always[f"slow-{number}"])
        assert (ever[f"slow-{number}"]["model"] - always[f"slow-{number}"]["model"]).norm() > 0


def test_a_group_has_its_way_whatever_the_algorithm_says():
    given = recipe({"epochs": 3}, algorithms={"fedavg": {"local": {"epochs": 2, "batch": 4}}})
    member = assemble(given, 0, None).federation.members["slow-0"]
    algorithm = given.algorithm("fedavg").with_local(member.local)
    assert algorithm == FedAvg(LocalTraining(epochs=3, batch=4, lr=0.1))


@pytest.mark.parametrize("algorithm", ["fedavg", "ditto"])
def test_every_engine_gives_the_same_bits(algorithm, tmp_path: Path):
    given = recipe(run=SHORT)
    one = prepare_run(given, algorithm, 0, tmp_path / "one")
    two = prepare_run(given, algorithm, 0, tmp_path / "two", engine=EngineChoice(workers=2))
    assert numbers(one.go()) == numbers(two.go())
    assert_same(one.server, two.server)
    none = prepare_run(recipe({}, run=SHORT), algorithm, 0, tmp_path / "none")
    assert numbers(none.go()) != numbers(one.history)


def test_another_machine_makes_the_same_clients_from_run_json(tmp_path: Path):
    given = recipe()
    prepare_run(given, "fedavg", 0, tmp_path)
    about = json.loads((tmp_path / "run.json").read_text())
    assert [group["local"] for group in about["recipe"]["groups"]] == [{}, OWN]
    places = ("recipe", "algorithm", "seed", "data", "partition")
    far, algorithm = reassemble(**{key: about[key] for key in places})
    near = trained(assemble(given, 0, None).federation, given.algorithm("fedavg"))
    assert_same(trained(far, algorithm), near)


def test_a_run_does_not_go_on_with_another_training(tmp_path: Path):
    prepare_run(recipe(), "fedavg", 0, tmp_path)
    prepare_run(recipe(), "fedavg", 0, tmp_path)
    with pytest.raises(UsageError, match="holds a run with another recipe"):
        prepare_run(recipe({"epochs": 2}), "fedavg", 0, tmp_path)


def test_a_run_that_was_written_before_groups_had_it_goes_on(tmp_path: Path):
    given = recipe({})
    prepare_run(given, "fedavg", 0, tmp_path)
    path = tmp_path / "run.json"
    about = json.loads(path.read_text())
    for group in about["recipe"]["groups"]:
        del group["local"]
    write_json(path, about)
    prepare_run(given, "fedavg", 0, tmp_path)


def test_an_institution_says_it_in_its_own_file():
    study = Study.of(recipe(clients=2, groups=[]), "fedavg", 0)
    data = {"name": "synthetic_vectors", "classes": 4, "examples": 80, "features": 6}
    plain = Enrolment.of(Candidate.of(study, "bank", {"data": data}, None))
    trains = {"data": data, "local": {"epochs": 3}}
    own = Enrolment.of(Candidate.of(study, "bank", trains, None))
    always = FedAvg(LocalTraining(epochs=3, lr=0.1, batch=8))
    assert_same(trained(own.federation, own.algorithm), trained(plain.federation, always))
    assert own.description == plain.description | {"local": {"epochs": 3}}
    with pytest.raises(UsageError, match=r"unknown key groups\.bank\.local\.epoch"):
        Candidate.of(study, "bank", {"data": data, "local": {"epoch": 3}}, None)


def otherwise(together: bool) -> Any:
    """Four clients of one size, two of which have another rate."""
    clients = federation(together, sizes=[16] * 4)
    own = {name: replace(clients.members[name], local={"lr": 0.5}) for name in ("c2", "c3")}
    return replace(clients, members={**clients.members, **own})


def test_who_trains_otherwise_is_in_another_cohort(tmp_path: Path):
    assert companies(otherwise(True), tmp_path) == [("c0", "c1"), ("c2", "c3")]


def test_such_cohorts_agree_with_the_loop(tmp_path: Path):
    loop, cohort = (
        outcome(FedAvg(LOCAL), otherwise(together), tmp_path / str(together))
        for together in (False, True)
    )
    assert (loop.server.model - cohort.server.model).norm() < 1e-6


def test_everybodys_data_in_one_place_are_trained_on_as_the_recipe_says():
    pool = assemble(recipe(groups=[{"name": "a", "count": 2, "local": OWN}]), 0, None).federation
    assert pool.members["a-0"].local == OWN
    assert pool.pooled().members[EVERYONE].local == {}


def test_privacy_asks_about_every_group():
    signed = recipe({"balance": True})
    made = assemble(signed, 0, None).federation
    with pytest.raises(UsageError, match=r"counts each example once: remove local\.balance"):
        made.protected(Privacy("example")).check(signed.algorithm("fedavg"), 2)


@pytest.mark.parametrize(("local", "message"), [
    ({"epoch": 3}, r"unknown key groups\.slow\.local\.epoch: 'epoch': did you mean 'epochs'"),
    ({"epochs": 0}, r"key groups\.slow\.local\.epochs: it should be greater than"),
    ({"lr": "fast"}, r"key groups\.slow\.local\.lr: it should be a valid number"),
    (3, r"key groups\.1\.local: it should be a valid dictionary"),
])  # fmt: skip
def test_wrong_keys_are_told_with_their_group(local, message):
    with pytest.raises(UsageError, match=f"tiny.toml: {message}"):
        recipe(local)


def test_what_an_algorithm_cannot_do_is_refused_for_a_group_too():
    with pytest.raises(UsageError, match=r"groups\.slow\.local, for scaffold: scaffold derives"):
        recipe({"momentum": 0.9}, algorithms={"scaffold": {}})
