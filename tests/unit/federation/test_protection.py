"""The seam for protections: one class is all that a new defence needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import FrozenInstanceError, dataclass
from typing import ClassVar

import pytest
from tests.helpers import tiny_federation

from consort import LocalTraining, Params, Run, Schedule
from consort.algorithms.fedavg import FedAvg
from consort.core.messages import Call, Reply
from consort.engines.middleware import Wrapper
from consort.errors import UsageError
from consort.federation.protection import Protection

LOCAL = LocalTraining(lr=0.1, batch=16)


@dataclass
class Counting(Wrapper):
    seen: list[str]

    def deliver(self, calls: Sequence[Call]) -> Iterator[Reply]:
        for reply in self.engine.deliver(calls):
            self.seen.append(reply.client)
            yield reply


@dataclass(frozen=True)
class Rounded(Protection):
    """A defence in one class: clients round what they send, the server counts answers."""

    table: ClassVar[str] = "rounded"
    seen: ClassVar[list[str]] = []
    digits: int = 1

    def check(self, federation, algorithm, present):
        if present < 2:
            raise UsageError("[rounded] needs two clients")

    def server(self, engine, setting):
        return Counting(engine, self.seen)

    def client(self, handler, setting):
        def rounded(request):
            content = handler(request)
            if "model" in content:
                model = content["model"]
                content["model"] = Params(
                    {n: t.round(decimals=self.digits) for n, t in model.items()}
                )
            return content

        return rounded


@pytest.mark.parametrize("workers", [1, 2])
def test_both_halves_are_at_work(workers):
    Rounded.seen.clear()
    federation = tiny_federation(2).protected(Rounded())
    run = Run(federation, FedAvg(LOCAL), Schedule(rounds=1, evaluate_every=0), workers=workers)
    run.go()
    assert Rounded.seen == ["c0", "c1"] * 2  # asked to train, and in the last round for scores
    plain = Run(tiny_federation(2), FedAvg(LOCAL), Schedule(rounds=1))
    plain.go()
    worst = max(
        (run.server.model[n] - plain.server.model[n]).abs().max() for n in plain.server.model
    )
    assert 0 < worst <= 0.05 + 1e-6


def test_it_may_refuse_a_federation():
    with pytest.raises(UsageError, match="needs two clients"):
        Run(tiny_federation(1).protected(Rounded()), FedAvg(LOCAL))


def test_later_ones_are_around_earlier_ones():
    order = []

    @dataclass(frozen=True)
    class Named(Protection):
        name: str

        def client(self, handler, setting):
            def named(request):
                order.append(self.name)
                return handler(request)

            return named

    federation = tiny_federation(1).protected(Named("inner"), Named("outer"))
    Run(federation, FedAvg(LOCAL), Schedule(rounds=1, evaluate_every=0)).go()
    assert order[:2] == ["outer", "inner"]


def test_a_federation_is_a_value():
    federation = tiny_federation(2)
    with pytest.raises(FrozenInstanceError):
        federation.seed = 1
    protected = federation.protected(Rounded())
    assert federation.protections == ()
    assert protected.protections == (Rounded(),)
    assert federation.protected() is federation
    assert protected.protected().protections == ()
