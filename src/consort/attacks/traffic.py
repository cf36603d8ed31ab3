"""What a finished run really sent: its last round, made once more while somebody listens.

Randomness is a function of seed, round and client, so nothing has to be recorded during a run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from consort.core.messages import Call, Reply
from consort.core.params import BUFFERS, Params
from consort.core.wire import encode
from consort.engines.middleware import Wrapper
from consort.engines.states import StateStore
from consort.errors import Failure
from consort.run.run import Run

COMPANION = "companion"


@dataclass
class Listening(Wrapper):
    """Keeps what some clients are asked and answer, as the server sees it."""

    clients: Sequence[str]
    heard: list[tuple[Call, Reply]] = field(default_factory=list)

    def deliver(self, calls: Sequence[Call]) -> Iterator[Reply]:
        """Passes everything on; errors are no messages."""
        for call, reply in zip(calls, self.engine.deliver(calls), strict=True):
            if call.client in self.clients and reply.error is None:
                self.heard.append((call, reply))
            yield reply


@dataclass(frozen=True)
class Traffic:
    """The messages of some clients in one round."""

    round: int
    exchanges: list[tuple[Call, Reply]]
    same: bool
    """Whether the round ended as it did in the run, bit for bit."""

    def of(self, client: str) -> list[tuple[Call, Reply]]:
        """The calls of one client with their replies, in order."""
        return [(call, reply) for call, reply in self.exchanges if call.client == client]


def last_traffic(run: Run, clients: Sequence[str]) -> Traffic:
    """What was said to some clients, and what they said, in the last finished round of a run."""
    saved, before = run.saved(), run.saved(back=1)
    if saved is None:
        raise Failure(
            f"{run.folder}: no round is finished yet; go on with `consort resume {run.folder}`"
        )
    number: int = saved["round"]
    if before is None and number > 1:
        raise Failure(f"{run.folder}: the state before round {number} is gone: start the run again")
    server = before["server"] if before else run.algorithm.start(run.federation.roster)
    listeners: list[Listening] = []

    def listen(engine: Any) -> Listening:
        listeners.append(Listening(engine, clients))
        return listeners[0]

    after = run.once_more(number, server, remembered(run, number), listen)
    same = encode(after) == encode(saved["server"])
    return Traffic(number, listeners[0].heard, same)


def remembered(run: Run, round_: int) -> StateStore:
    """What clients knew before a round, in memory: the run's own files stay as they are."""
    written, store = StateStore(run.folder and run.folder / "clients"), StateStore()
    for client in run.federation.client_ids:
        if data := written.read(client, (round_, 0)):
            store.write(client, (round_ - 1, 0), data)
    return store


@dataclass(frozen=True)
class Update:
    """What stands for a client's gradient in its messages."""

    model: Params
    """The weights it was computed from, as far as the server knows them."""
    direction: Params
    """By what they went down, of the parameters that were sent."""
    signed: bool
    """Whether up and down are known: a difference of models tells, a bare update does not."""


def updates(call: Call, reply: Reply, known: Params) -> list[Update]:
    """What can be taken for gradients in a reply, the largest first.

    What was received is a model, and not something to add to one, if it is nearer to the known one
    than to zero. What was sent is a model if it is nearer to a received one than to zero, or to the
    known one where none was received; and else an update.
    """
    received = [params for params in params_in(call.payload, known) if _before(params, [known])]
    largest = max(received, key=Params.norm, default=known)
    found = []
    for sent in params_in(reply.content, known):
        whole = [model for model in received if sent.keys() <= model.keys()]
        before = _before(sent, whole or [known])
        moved = (sent if before is None else before - sent).without(BUFFERS)
        if moved and moved.norm() > 0:
            found.append(Update(known | largest | (before or {}), moved, before is not None))
    return sorted(found, key=lambda update: update.direction.size, reverse=True)


def whole_models(call: Call, reply: Reply, initial: Params) -> list[Params]:
    """The models in a reply of which no parameter is missing."""
    received = [*params_in(call.payload, initial), initial]
    needed = initial.without(BUFFERS, COMPANION).keys()
    return [
        sent
        for sent in params_in(reply.content, initial)
        if needed <= sent.keys() and _before(sent, received) is not None
    ]


def _before(sent: Params, models: Sequence[Params]) -> Params | None:
    """What a sent model was before it was trained; nothing, if it seems to be no model."""
    parts = [
        Params({name: model[name] for name in sent})
        for model in models
        if sent.keys() <= model.keys()
    ]
    nearest = min(parts, key=lambda part: (part - sent).norm())
    return nearest if (nearest - sent).norm() < sent.norm() else None


def params_in(value: Any, like: Params) -> list[Params]:
    """All `Params` in a payload, however deep, each without what has another shape."""
    if isinstance(value, Params):
        fitting = {n: t for n, t in value.items() if n in like and like[n].shape == t.shape}
        return [Params(fitting)] if fitting else []
    if not isinstance(value, Mapping | list | tuple):
        return []
    items = value.values() if isinstance(value, Mapping) else value
    return [params for item in items for params in params_in(item, like)]
