"""What the contract is checked with: tiny runs, their whole outcome, and an engine that listens."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.helpers import tiny_federation
from torch import Tensor, nn

from consort.algorithms.registry import algorithm_places, find_algorithm
from consort.core.algorithm import Algorithm, Clients
from consort.core.messages import Call, Reply
from consort.core.row import Row
from consort.core.wire import encode
from consort.engines.embedded import Embedded
from consort.engines.host import ClientHost
from consort.engines.middleware import Wrapper
from consort.engines.states import StateStore
from consort.errors import ClientFailed
from consort.federation.federation import Federation
from consort.models.inputs import number_count
from consort.run.observer import Observer
from consort.run.run import Run
from consort.run.schedule import Schedule
from consort.training.local import LocalTraining

NAMES = tuple(algorithm_places())
every_algorithm = pytest.mark.parametrize("name", NAMES)

ROUGH = {"name": "rough"}
MEASUREMENTS = ("seconds", "evaluation_seconds", "peak_memory_mib")


class Rough(nn.Module):
    """BatchNorm and dropout: all that can make a model behave differently from call to call."""

    measure = staticmethod(number_count)

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.layer = nn.Linear(inputs, 6)
        self.norm = nn.BatchNorm1d(6)
        self.dropout = nn.Dropout(0.3)
        self.width = 6

    def forward(self, inputs: Tensor) -> Tensor:
        return self.dropout(self.norm(self.layer(inputs)).relu())


def make(name: str, clients: int = 2) -> Algorithm[Any]:
    """An algorithm with a rate and a batch from which tiny clients learn something.

    If it has several models, they are two, but never more than there are clients; if its server
    trains something, it is quick about it.
    """
    cls: Any = find_algorithm(name)
    models = min(2, clients)
    usual = {
        "local": LocalTraining(lr=0.1, batch=16),
        "models": models,
        "clusters": models,
        "server_steps": 5,
    }
    fields = {entry.name for entry in dataclasses.fields(cls)}
    algorithm: Algorithm[Any] = cls(**{key: usual[key] for key in usual if key in fields})
    return algorithm


@dataclass
class Outcome:
    """All that a run leaves behind, apart from what was measured with a clock."""

    rows: list[Row]
    server: Any
    states: dict[str, dict[str, Any]]

    @property
    def weights(self) -> bytes:
        """What was learnt, on the server and on the clients."""
        return encode([self.server, self.states])


def finish(run: Run) -> Outcome:
    """Goes to the end of a run that has a folder, and gathers what it left there."""
    run.go()
    store = StateStore(run.folder / "clients")
    end = (run.schedule.rounds + 1, 0)
    return Outcome(
        [row for row in run.history if row.metric not in MEASUREMENTS],
        run.server,
        {client: dict(store.load(client, end)) for client in run.federation.client_ids},
    )


def run_of(
    name: str, folder: Path, federation: Federation | None = None, rounds: int = 3, **settings: Any
) -> Run:
    """A run of three rounds with three clients; the settings are the schedule's and the run's."""
    folder.mkdir(exist_ok=True)
    own = {entry.name for entry in dataclasses.fields(Run)} & settings.keys()
    schedule = Schedule(rounds, **{key: settings[key] for key in settings.keys() - own})
    federation = federation or tiny_federation(3)
    return Run(
        federation,
        make(name, len(federation.client_ids)),
        schedule,
        folder=folder,
        **{key: settings[key] for key in own},
    )


def assert_same_outcome(one: Outcome, other: Outcome) -> None:
    """Every row and every bit agree."""
    assert one.rows == other.rows
    assert one.weights == other.weights


@dataclass
class Listener(Observer):
    """Notes who failed."""

    failures: list[ClientFailed] = field(default_factory=list)

    def failed(self, error: ClientFailed) -> None:
        self.failures.append(error)


@dataclass
class Exchange:
    """A call and its reply, with the bytes they had when they were sent."""

    call: Call
    reply: Reply
    asked: bytes
    answered: bytes


@dataclass
class Listening(Wrapper):
    """Notes everything that is said."""

    exchanges: list[Exchange] = field(default_factory=list)

    def deliver(self, calls: Sequence[Call]) -> Iterator[Reply]:
        asked = [encode(call.payload) for call in calls]
        replies = self.engine.deliver(calls)
        for call, reply, before in zip(calls, replies, asked, strict=True):
            assert reply.error is None, reply.error.traceback
            self.exchanges.append(Exchange(call, reply, before, encode(reply.content)))
            yield reply


def overhear(
    algorithm: Algorithm[Any],
    federation: Federation,
    rounds: int = 2,
    store: StateStore | None = None,
    planned: int | None = None,
) -> tuple[list[Exchange], list[Any]]:
    """Everything said in the first of the planned rounds and their evaluations, and all states."""
    if algorithm.pools_data:
        federation = federation.pooled()
    planned = planned or rounds
    host = ClientHost(federation, algorithm, 0, planned, store or StateStore())
    engine = Listening(Embedded(host))
    servers = [algorithm.start(federation.roster)]
    for number in range(1, rounds + 1):
        here = (number, planned, 0, engine, len(federation.client_ids))
        clients = Clients(federation.client_ids, *here, bench=federation.server_side)
        servers.append(algorithm.round(servers[-1], clients))
        algorithm.evaluate(servers[-1], Clients(federation.evaluation_ids, *here, True))
    return engine.exchanges, servers
