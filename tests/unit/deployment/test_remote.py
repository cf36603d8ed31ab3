"""A run remembers its clients: it goes on without one whose admission was taken back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedconsort[flower]'")

from tests.institutions import NAMES, STUDY, Institutions, groups
from tests.letters import PostOffice, participants
from tests.unit.cli.command import measured, server_bytes

from consort.core.messages import Call, Reply
from consort.deployment.credentials import ClientCredentials
from consort.deployment.server import FederationServer
from consort.deployment.stack import FlowerStack
from consort.deployment.status import current_status
from consort.engines.embedded import Embedded
from consort.engines.flower import Envelopes, NoEnvelopes
from consort.engines.middleware import Absent, Wrapper
from consort.errors import Failure, UsageError
from consort.experiment.loading import load_recipe, recipe_of
from consort.experiment.preparation import prepare_run
from consort.experiment.recipe import Recipe
from consort.run.observer import Observer

REVOKED = "b-0"
ALGORITHMS = "[algorithms.ditto]\n[algorithms.ifca]\nclusters = 2\n"


class Killed(BaseException):
    pass


@dataclass
class Near:
    """A stack whose clients are in this process."""

    grid: PostOffice
    revoked: set[str] = field(default_factory=set)
    envelopes: Envelopes = field(default_factory=NoEnvelopes)

    @property
    def nodes(self) -> dict[str, int]:
        return {name: node for name, node in self.grid.nodes.items() if name not in self.revoked}

    def admits(self, client: str) -> bool:
        return client not in self.revoked

    def bound_answers(self, parameters: int) -> None:
        assert parameters > 0


@pytest.fixture
def stack(tmp_path: Path) -> Near:
    return Near(PostOffice(participants(tmp_path / "homes")))


@pytest.fixture
def study(tmp_path: Path) -> Recipe:
    (tmp_path / "study.toml").write_text(STUDY.replace("rounds = 2", "rounds = 3") + ALGORITHMS)
    return load_recipe(tmp_path / "study.toml")


def run(study: Recipe, stack: Near, folder: Path, algorithm: str = "ditto") -> list[str]:
    """One `consort server`; what it said."""
    said: list[str] = []
    server = FederationServer(study, algorithm, 0, folder, None, 60, said.append)  # type: ignore[arg-type]
    members = list(server.ledger.members or stack.nodes)
    server.status.begin(members, algorithm=algorithm, rounds=3)
    server.run(stack, Observer())  # type: ignore[arg-type]
    return said


def begin(study: Recipe, stack: Near, folder: Path, until: int, algorithm: str = "ditto") -> None:
    """A server that is killed when it calls the first client in a round."""

    def decide(_: str, header: dict[str, Any]) -> str:
        if header["kind"] == "call" and header["call"][2] == until:
            raise Killed
        return "arrives"

    stack.grid.fate = decide
    with pytest.raises(Killed):
        run(study, stack, folder, algorithm)
    stack.grid.fate = lambda *_: "arrives"


class Without(Wrapper):
    """One client is absent from a round on."""

    since = 2

    def deliver(self, calls: Sequence[Call]) -> Iterator[Reply]:
        for call in calls:
            if call.client == REVOKED and call.round >= self.since:
                yield Reply(call.client, error=Absent(call.client, "left out"))
            else:
                yield from self.engine.deliver([call])


def in_one_process(study: Recipe, folder: Path, algorithm: str, since: int) -> Path:
    table = study.table
    settings = {k: v for k, v in table.items() if v is not None and k != "clients"}
    made = prepare_run(recipe_of(settings | {"groups": groups()}, "near"), algorithm, 0, folder)

    def engine(host: Any) -> Without:
        absent = Without(Embedded(host))
        absent.since = since
        return absent

    made.engine = engine
    made.go()
    return folder


@pytest.mark.parametrize(("algorithm", "moment"), [("ditto", 2), ("ditto", 1), ("ifca", 1)])
def test_a_run_goes_on_without_a_client_that_was_revoked(algorithm, moment, study, stack, tmp_path):
    begin(study, stack, tmp_path / "far", moment, algorithm)
    stack.revoked.add(REVOKED)
    said = run(study, stack, tmp_path / "far", algorithm)
    assert f"{REVOKED} is no longer admitted: the run continues without it" in said
    status = current_status(tmp_path / "far")
    assert status["phase"] == "finished"
    assert status["clients"][REVOKED]["state"] == "failed: is no longer admitted"
    assert any("continued without client b-0: is no longer" in text for _, text in status["events"])
    near = in_one_process(study, tmp_path / "near", algorithm, moment)
    assert measured(tmp_path / "far") == measured(near)
    assert server_bytes(tmp_path / "far") == server_bytes(near)


def test_a_client_that_is_revoked_meanwhile_is_not_waited_for(study, stack, tmp_path):
    def decide(client: str, header: dict[str, Any]) -> str:
        if client == REVOKED and header["kind"] == "call" and header["call"][2] == 2:
            stack.revoked.add(client)
            return "late"
        return "arrives"

    stack.grid.fate = decide
    run(study, stack, tmp_path / "far")
    near = in_one_process(study, tmp_path / "near", "ditto", 2)
    assert measured(tmp_path / "far") == measured(near)
    assert server_bytes(tmp_path / "far") == server_bytes(near)


def test_one_that_is_admitted_again_takes_part_again(study, stack, tmp_path):
    begin(study, stack, tmp_path / "far", 2)
    stack.revoked.add(REVOKED)
    begin(study, stack, tmp_path / "far", 3)
    stack.revoked.clear()
    asked = len(stack.grid.headers)
    run(study, stack, tmp_path / "far")
    rounds = [
        h["call"][2] for name, h in stack.grid.headers[asked:] if name == REVOKED if "call" in h
    ]
    assert set(rounds) == {3}


def test_before_the_run_begins_the_recipe_decides_how_many_take_part(study, stack, tmp_path):
    stack.grid.offline.add("c-0")
    arrived = stack.grid.online

    def online() -> set[int]:
        stack.revoked.add("c-0")
        return arrived()

    stack.grid.online = online  # type: ignore[method-assign]
    with pytest.raises(UsageError, match="c-0 is no longer admitted and the run has not begun: ad"):
        run(study, stack, tmp_path / "far")


def test_somebody_must_be_left(study, stack, tmp_path):
    begin(study, stack, tmp_path / "far", 2)
    stack.revoked |= set(NAMES)
    with pytest.raises(UsageError, match=r"none of the clients of .* is admitted any more"):
        run(study, stack, tmp_path / "far")


@pytest.fixture
def unlike(stack: Near, tmp_path: Path) -> Recipe:
    """The client that will be revoked has a model of its own."""
    stack.grid.participants[REVOKED].brings |= {"model": {"name": "mlp", "hidden": [5, 8]}}
    (tmp_path / "study.toml").write_text(STUDY + "[algorithms.fedproto]\n")
    return load_recipe(tmp_path / "study.toml")


def test_a_model_that_nobody_else_has_is_not_missed_later(unlike, stack, tmp_path):
    begin(unlike, stack, tmp_path / "far", 2, "fedproto")
    stack.revoked.add(REVOKED)
    run(unlike, stack, tmp_path / "far", "fedproto")
    assert current_status(tmp_path / "far")["phase"] == "finished"


def test_a_model_that_nobody_else_has_is_missed_in_the_first_round(unlike, stack, tmp_path):
    begin(unlike, stack, tmp_path / "far", 1, "fedproto")
    stack.revoked.add(REVOKED)
    with pytest.raises(
        Failure, match="b-0 is no longer admitted and no other client has the same model"
    ):
        run(unlike, stack, tmp_path / "far", "fedproto")


def test_the_stack_admits_a_client_while_its_key_is_the_same(tmp_path):
    institutions = Institutions(tmp_path)
    server, request = institutions.server, tmp_path / REVOKED / f"{REVOKED}.request"
    stack = FlowerStack("localhost:9092", server, server.admitted(), tmp_path / "flower")

    def admitted() -> list[str]:
        stack.gateway._fresh = 0.0  # two seconds later, so to speak
        return [name for name in (*NAMES, "stranger") if stack.admits(name)]

    assert admitted() == list(NAMES)
    server.revoke(REVOKED)
    assert admitted() == ["a-0", "c-0"]
    server.admit(request, 2)
    assert admitted() == list(NAMES)
    server.revoke(REVOKED)
    other = ClientCredentials.create(tmp_path / "other", REVOKED)
    server.admit(other.request, 2)
    assert admitted() == ["a-0", "c-0"]


def test_the_port_is_opened_for_the_clients_of_the_run_that_are_left(study, stack, tmp_path):
    institutions = Institutions(tmp_path / "institutions")
    out = tmp_path / "far"
    fresh = FederationServer(study, "ditto", 0, out, institutions.server, 60, print)
    assert list(fresh._expected()) == list(NAMES)
    institutions.server.revoke(REVOKED)
    with pytest.raises(
        UsageError, match=r"is for 3 clients, but 2 are admitted .*: admit the missing"
    ):
        fresh._expected()
    begin(study, stack, out, 2)
    institutions.admit("d-0")
    again = FederationServer(study, "ditto", 0, out, institutions.server, 60, print)
    assert list(again._expected()) == ["a-0", "c-0"]


def test_nobody_acts_out_an_attack_among_institutions(study: Recipe, stack: Near, tmp_path: Path):
    attacked = replace(study, attack={"by": ["sign_flip"]})
    with pytest.raises(UsageError, match="works in simulations only: remove it"):
        run(attacked, stack, tmp_path / "out")
