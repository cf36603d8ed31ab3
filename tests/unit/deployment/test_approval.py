"""A client takes part in a study once its owner has said yes to exactly this study."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.adversaries.evil_server import EvilServer, House, honest_recipe, victim
from tests.installed import IMPORT, put_package
from tests.unit.cli.command import consort

from consort.deployment.approval import WAITING, Studies
from consort.deployment.policy import Policy
from consort.experiment.recipe import Recipe


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "credentials"


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    return honest_recipe(tmp_path / "mail", "[algorithms.fedper]\n[algorithms.fedavg]\n")


def server_of(recipe: Recipe, home: Path, **changes: Any) -> EvilServer:
    changes = {"policy": Policy(), "studies": Studies.of(home)} | changes
    return EvilServer(victim(House(home.parent / "house"), **changes), recipe, "fedper")


def only(home: Path) -> str:
    (entry,) = Studies.of(home).all()
    return entry.hash


def test_nothing_is_told_before_the_owner_says_yes(recipe, home):
    said: list[str] = []
    server = server_of(recipe, home, say=said.append)
    for ask in (server.describe, server.initial, lambda: server.call({})):
        assert ask().error == WAITING
    assert said[:5] == [
        f"study {only(home)[:8]}: three institutions",
        "  algorithm fedper, seed 0, 2 rounds",
        "  leaves this client, at most, in an answer: encoder 224 bytes; and numbers such as "
        "scores and counts",
        "  protections: none",
        f"  versions: consort 0.1.0, torch {torch.__version__}",
    ]
    assert said[5:] == [f"refused: {WAITING}"] * 3  # once for each kind of message
    Studies.of(home).decide(only(home)[:8], "approved")
    assert server.describe().payload["train"] > 0
    assert server.initial().payload["model"].size == 92


def test_an_approval_is_remembered_and_can_be_taken_back(recipe, home):
    server_of(recipe, home).describe()
    Studies.of(home).decide(only(home)[:4], "approved")
    again = server_of(recipe, home)
    assert again.describe().payload
    Studies.of(home).decide(only(home), "refused")
    assert again.describe().error == "its owner does not take part in this study"


def test_whatever_changes_needs_a_new_yes(recipe, home, monkeypatch):
    server_of(recipe, home).describe()
    Studies.of(home).decide(only(home), "approved")
    other = replace(recipe, local={"lr": 0.2})
    assert server_of(other, home).describe().error == WAITING
    seeded = server_of(recipe, home)
    assert seeded.describe(study=seeded.proposing({}, seed=1)).error == WAITING
    monkeypatch.setattr(torch, "__version__", "9.9")
    assert server_of(recipe, home).describe().error == WAITING
    assert len(Studies.of(home).all()) == 4


def test_so_does_other_code_of_the_client_itself(recipe, home, tmp_path):
    net = tmp_path / "net.py"
    brings = victim(House(tmp_path)).brings | {"model": {"name": f"{net}:Net"}}
    net.write_text("from consort.models.mlp import Mlp as Net\n")
    server_of(recipe, home, brings=brings).describe()
    Studies.of(home).decide(only(home), "approved")
    assert server_of(recipe, home, brings=brings).describe().payload
    net.write_text("from consort.models.mlp import Mlp as Net\n\n")
    assert server_of(recipe, home, brings=brings).describe().error == WAITING


def test_versions_of_plug_ins_count(recipe, home, site):
    put_package(
        site, "my-lab", IMPORT + 'plugin = Plugin(models={"net": "consort.models.mlp:Mlp"})'
    )
    server = server_of(recipe, home, policy=Policy(models=["net"]))
    server.describe(study=server.proposing({"model": {"name": "net"}}))
    (entry,) = Studies.of(home).all()
    assert entry.versions.keys() == {"consort", "torch", "my-lab"}


def test_what_the_policy_does_not_allow_is_not_even_asked(recipe, home):
    server = server_of(recipe, home, policy=Policy(algorithms=["fedavg"]))
    assert "its policy does not allow algorithms such as 'fedper'" in server.describe().error
    assert not Studies.of(home).all()


def test_a_policy_can_approve_of_all_that_it_lists(recipe, home):
    server = server_of(recipe, home, policy=Policy("listed", algorithms=["fedper"]))
    assert server.describe().payload
    assert not Studies.of(home).all()


def test_the_recipe_that_the_owner_gave_is_approved(recipe, home):
    server = server_of(recipe, home, agreed=recipe)
    assert server.describe().payload
    other = server.proposing({"local": {"lr": 0.2}})
    assert "--recipe differs" in server.describe(study=other).error


def test_a_server_cannot_fill_the_disk_with_studies(recipe, home, monkeypatch):
    monkeypatch.setattr("consort.deployment.approval._MOST_WAITING", 3)
    server = server_of(recipe, home)
    for seed in range(3):
        assert server.describe(study=server.proposing({}, seed=seed)).error == WAITING
    error = server.describe(study=server.proposing({}, seed=3)).error
    assert error == "too many studies wait for its owner's approval"
    assert len(Studies.of(home).all()) == 3


def test_the_owner_decides_by_commands(recipe, home):
    server = server_of(recipe, home)
    server.describe()
    hash = only(home)
    listed = consort("site", "studies", home).out
    assert listed.startswith("waiting, 2")
    assert f"study {hash[:8]}: three institutions" in listed
    assert consort("site", "approve", home, hash[:8]).out.endswith("approved\n")
    assert server.describe().payload
    assert consort("site", "studies", home).out.startswith("approved, ")
    assert consort("site", "refuse", home, hash[:8]).out == f"study {hash[:8]} is refused\n"
    for start, message in (
        ("ffffffff", "0 studies"),
        ("../../x", "is not a study"),
        (hash[:3], "at least 4 digits"),
    ):
        assert message in consort("site", "approve", home, start).error
    assert consort("site", "studies", home.parent / "nobody").out == ""


def test_decisions_are_the_owners_only(recipe, home):
    server_of(recipe, home).describe()
    assert stat.S_IMODE((home / "studies").stat().st_mode) == 0o700


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"hash": "x"}'])
def test_a_damaged_decision_is_no_yes(text, recipe, home):
    server = server_of(recipe, home)
    server.describe()
    Studies.of(home).decide(only(home), "approved")
    path = home / "studies" / f"{only(home)}.json"
    whole = path.read_text()
    path.write_text(text)
    assert server.describe().error == "Failure (see the client's own log)"
    path.rename(path.with_name(f"{'0' * 32}.json")).write_text(whole)
    assert server.describe().error
