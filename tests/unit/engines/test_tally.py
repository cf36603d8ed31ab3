"""A round in which no client gave an answer that can be used ends the run, with one sentence."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import pytest
from tests.helpers import assert_same, tiny_federation

from consort import Failure, LocalTraining, Run, Schedule, on_client
from consort.algorithms.fedavg import FedAvg
from consort.core.messages import Call, Reply
from consort.engines.middleware import Absent, NotReached, RefusedReply
from consort.engines.tally import Tally
from consort.errors import ClientFailed
from consort.run.observer import Observer

LOCAL = LocalTraining(lr=0.1)


@dataclass
class Notebook(Observer):
    """Keeps what it is told."""

    failures: list[ClientFailed] = field(default_factory=list)

    def failed(self, error: ClientFailed) -> None:
        self.failures.append(error)


@dataclass(frozen=True)
class Broken(FedAvg):
    """Some clients fail in a round."""

    which: tuple[str, ...] = ()

    @on_client
    def train(self, client, model):
        if client.round == 2 and client.id in self.which:
            raise ValueError("it is broken")
        return super().train(client, model=model)


@pytest.mark.parametrize("policy", ["skip", "retry", "stop"])
def test_training_that_diverges_everywhere_ends_with_the_way_out(policy):
    wild = FedAvg(LocalTraining(lr=1e20))
    run = Run(tiny_federation(4), wild, Schedule(3, on_error=policy))
    with pytest.raises(Failure) as caught:
        run.go()
    text = str(caught.value)
    assert text.startswith(
        "round 1: the answers of all 4 clients that were asked failed or were refused (c0: "
        "encoder.layers.0.weight holds values beyond 1e+15; c1: "
    )
    assert text.endswith("; and 1 more): training has diverged, so lower the learning rate")
    assert "\n" not in text


@pytest.mark.parametrize("participation", [1.0, 0.7])
def test_a_run_goes_on_after_it_was_repaired(tmp_path, participation, monkeypatch):
    schedule = Schedule(4, on_error="skip", participation=participation)
    monkeypatch.setattr(Mended, "broken", True)
    broken = Run(tiny_federation(3), Mended(LOCAL), schedule, folder=tmp_path / "a")
    words = r"^round 2: .*c\d: ValueError: it is broken.*repair that .* are not lost$"
    with pytest.raises(Failure, match=words):
        broken.go()
    assert [path.name for path in (tmp_path / "a").glob("*.ckpt")] == ["round-000001.ckpt"]
    monkeypatch.setattr(Mended, "broken", False)
    again = Run(tiny_federation(3), Mended(LOCAL), schedule, folder=tmp_path / "a")
    again.go()
    straight = Run(tiny_federation(3), Mended(LOCAL), schedule)
    straight.go()
    assert_same(again.server, straight.server)


@dataclass(frozen=True)
class Mended(FedAvg):
    """Every client fails in round 2, until somebody has repaired the cause."""

    broken: ClassVar[bool] = False

    @on_client
    def train(self, client, model):
        if client.round == 2 and Mended.broken:
            raise ValueError("it is\nbroken")
        return super().train(client, model=model)


def test_one_answer_is_enough():
    notebook = Notebook()
    algorithm = Broken(LOCAL, which=("c0", "c1"))
    Run(tiny_federation(3), algorithm, Schedule(3, on_error="skip"), observer=notebook).go()
    assert [error.client for error in notebook.failures] == ["c0", "c1"]


@dataclass
class Scripted:
    """Answers with what it was given."""

    errors: dict[str, ClientFailed | None]

    def deliver(self, calls):
        for call in calls:
            yield Reply(call.client, {}, self.errors[call.client])

    def close(self):
        """Nothing to do."""


@pytest.mark.parametrize(("errors", "population", "ends"), [
    ({"a": ClientFailed("a", "x"), "b": RefusedReply("b", "y")}, 3, True),
    ({"a": ClientFailed("a", "x"), "b": RefusedReply("b", "y")}, 4, False),  # no majority
    ({"a": ClientFailed("a", "x")}, 1, True),
    ({"a": ClientFailed("a", "x")}, 5, False),  # another one may be asked next time
    ({"a": ClientFailed("a", "x"), "b": Absent("b", "late")}, 2, False),  # it may be back
    ({"a": ClientFailed("a", "x"), "b": NotReached("b", "z"), "c": RefusedReply("c", "")}, 3, True),
    ({"a": NotReached("a", "z"), "b": NotReached("b", "z")}, 2, False),
    ({"a": ClientFailed("a", "x"), "b": None}, 2, False),
])  # fmt: skip
def test_who_counts(errors, population, ends):
    tally = Tally(Scripted(errors))
    calls = [Call(client, "train", 1, 0, 0, {}) for client in errors]
    list(tally.deliver(calls))
    if ends:
        with pytest.raises(Failure, match=r"round 1: .* failed or were refused \(a: x"):
            tally.close_round(1, population)
    else:
        tally.close_round(1, population)
    tally.close_round(2, population)  # nothing is left of the round before


def test_a_long_reason_is_cut():
    tally = Tally(Scripted({"a": ClientFailed("a", "word\n" * 1000)}))
    list(tally.deliver([Call("a", "train", 1, 0, 0, {})]))
    with pytest.raises(Failure) as caught:
        tally.close_round(1, 1)
    assert len(str(caught.value)) < 400


def test_several_rounds_without_an_answer_add_up_to_a_majority():
    tally = Tally(Scripted({c: ClientFailed(c, "x") for c in "abc"} | {"d": None}))

    def round_of(number, clients):
        list(tally.deliver([Call(client, "train", number, 0, 0, {}) for client in clients]))
        tally.close_round(number, population=5)

    round_of(1, "ab")
    round_of(2, "cd")  # one answer: those before are forgotten
    round_of(3, "ab")
    round_of(4, "ba")  # the same ones again
    with pytest.raises(Failure, match=r"round 5: .*a: x; b: x; c: x"):
        round_of(5, "c")
