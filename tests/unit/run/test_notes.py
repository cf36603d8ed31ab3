"""Numbers that algorithms note, on the server and in the answers of clients that are tested."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.helpers import tiny_federation

from consort.core.algorithm import Algorithm, Clients, on_client
from consort.core.messages import Payload, Replies
from consort.core.roster import Roster
from consort.core.row import Row
from consort.engines.scripted import Scripted
from consort.errors import NoReplies
from consort.results.result import Result
from consort.run.run import Run
from consort.run.schedule import Schedule
from consort.training.client import Client


def clients(round_=3):
    return Clients(("a", "b", "c"), round_, 9, 0, Scripted(lambda call: {}), 3)


def test_a_number_of_the_whole_round():
    here = clients(round_=4)
    here.note("objective", 0.5)
    here.note("objective", 0.25, part="smooth")
    assert here.notes == [Row(4, "objective", 0.5), Row(4, "objective", 0.25, part="smooth")]


def test_a_number_of_every_client():
    here = clients()
    here.note("weight", {"b": 0.75, "a": 0.25}, part="1")
    assert here.notes == [
        Row(3, "weight", 0.75, "b", part="1"),
        Row(3, "weight", 0.25, "a", part="1"),
    ]


def test_some_of_the_clients_note_in_the_same_place():
    here = clients()
    here.among(["a"]).note("one", 1.0)
    here.note("two", 2.0)
    assert [row.metric for row in here.notes] == ["one", "two"]


def test_every_round_notes_for_itself():
    clients().note("objective", 0.5)
    assert clients().notes == []


@dataclass(frozen=True)
class Nothing:
    """A server that knows nothing."""

    rounds: int = 0


@dataclass(frozen=True)
class Noting(Algorithm[Nothing]):
    """Nobody learns anything, but everything is noted."""

    skips: int = 0
    """A round in which nobody is found to have answered."""

    def start(self, roster: Roster) -> Nothing:
        return Nothing()

    def round(self, server: Nothing, clients: Clients) -> Nothing:
        replies = clients.ask(self.count)
        clients.note("examples", replies.each("examples"))
        clients.note("total", sum(replies.each("examples").values()))
        if clients.round == self.skips:
            raise NoReplies("nobody is there")
        return Nothing(server.rounds + 1)

    @on_client
    def count(self, client: Client) -> Payload:
        return {"examples": client.examples}

    def evaluate(self, server: Nothing, clients: Clients) -> Replies:
        clients.note("asked", len(clients.ids))
        return clients.ask(self.test)

    @on_client
    def test(self, client: Client) -> Payload:
        return {"luck": 7 + client.examples, "global": client.score(), "risk": 0.5}


def noted(run: Run) -> list[Row]:
    return [row for row in run.go() if row.metric in ("examples", "total", "luck", "risk", "asked")]


def test_what_is_noted_becomes_rows():
    found = noted(Run(tiny_federation(2), Noting(), Schedule(rounds=2, evaluate_every=2)))
    trained = [
        [Row(r, "examples", 30, "c0"), Row(r, "examples", 31, "c1"), Row(r, "total", 61)]
        for r in (1, 2)
    ]
    tested = [
        Row(2, "asked", 2),
        Row(2, "luck", 37, "c0"),
        Row(2, "risk", 0.5, "c0"),
        Row(2, "luck", 38, "c1"),
        Row(2, "risk", 0.5, "c1"),
    ]
    assert found == [*trained[0], *trained[1], *tested]


def test_numbers_beside_scores_change_no_score():
    history = Run(tiny_federation(2), Noting(), Schedule(rounds=1)).go()
    scores = [row for row in history if row.split]
    assert {row.model for row in scores} == {"global"}
    assert len(scores) == 2 * 2 * 3
    assert all(row.n == 10 for row in scores)


@pytest.mark.parametrize("workers", [1, 2])
def test_what_is_noted_outlives_the_run(workers, tmp_path: Path):
    run = Run(tiny_federation(2), Noting(), Schedule(rounds=2), folder=tmp_path, workers=workers)
    found = noted(run)
    assert len(found) == 2 * (3 + 5)
    again = Run(tiny_federation(2), Noting(), Schedule(rounds=2), folder=tmp_path, workers=workers)
    assert noted(again) == found


def test_a_round_that_is_skipped_notes_nothing():
    found = noted(Run(tiny_federation(2), Noting(skips=2), Schedule(rounds=3, evaluate_every=0)))
    assert [row.round for row in found if row.metric == "total"] == [1, 3]


def test_what_is_noted_is_no_time_of_a_client(tmp_path: Path):
    run = Run(tiny_federation(2), Noting(), Schedule(rounds=2), folder=tmp_path)
    history = list(run.go())
    about = {
        "algorithm": "noting", "seed": 0, "rounds": 2, "reports": "global", "clients": {},
        "recipe": {}, "partition": "", "workers": 1, "data": None,
        "tasks": {"classify": {"metric": "accuracy", "higher_is_better": True}},
    }  # fmt: skip
    (tmp_path / "run.json").write_text(json.dumps(about))
    result = Result.load(tmp_path)
    expected = {
        client: sum(r.value for r in history if (r.metric, r.client) == ("seconds", client))
        for client in ("c0", "c1")
    }
    assert result.client_seconds() == pytest.approx(expected)
    assert result.value("client_seconds") == pytest.approx(sum(expected.values()))
    assert max(expected.values()) < 7
    assert result.per_round("total") == {1: 61, 2: 61}
    assert result.noted == ["asked", "examples", "luck", "risk", "total"]
    assert result.notes("luck")[""][2] == {"c0": 37, "c1": 38}
    assert result.rounds_done == 2
