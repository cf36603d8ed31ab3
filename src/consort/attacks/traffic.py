"""The messages of a finished run, obtained by repeating its last round.

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
class RecordingEngine(Wrapper):
    """Records the calls and replies of some clients, as the server sees them."""

    clients: Sequence[str]
    exchanges: list[tuple[Call, Reply]] = field(default_factory=list)

    def deliver(self, calls: Sequence[Call]) -> Iterator[Reply]:
        """Delivers the calls unchanged; replies with errors are not recorded."""
        for call, reply in zip(calls, self.engine.deliver(calls), strict=True):
            if call.client in self.clients and reply.error is None:
                self.exchanges.append((call, reply))
            yield reply


@dataclass(frozen=True)
class Traffic:
    """The messages of some clients in one round."""

    round: int
    exchanges: list[tuple[Call, Reply]]
    reproduced: bool
    """Whether the repeated round ended in the same state as in the run, bit for bit."""

    def of(self, client: str) -> list[tuple[Call, Reply]]:
        """The calls and replies of one client, in order."""
        return [(call, reply) for call, reply in self.exchanges if call.client == client]


def replay_last_round(run: Run, clients: Sequence[str]) -> Traffic:
    """Repeats the last finished round of a run and records the messages of some clients.

    Args:
        run: The run.
        clients: The clients whose messages are recorded.

    Returns:
        The messages.

    Raises:
        Failure: If no round is finished, or the state before it is gone.
    """
    saved, before = run.saved(), run.saved(back=1)
    if saved is None:
        raise Failure(
            f"{run.folder}: no round is finished yet; continue with `consort resume {run.folder}`"
        )
    number: int = saved["round"]
    if before is None and number > 1:
        raise Failure(f"{run.folder}: the state before round {number} is gone: start the run again")
    server = before["server"] if before else run.algorithm.start(run.federation.roster)
    recorders: list[RecordingEngine] = []

    def record(engine: Any) -> RecordingEngine:
        recorders.append(RecordingEngine(engine, clients))
        return recorders[0]

    after = run.once_more(number, server, states_before(run, saved), record)
    reproduced = encode(after) == encode(saved["server"])
    return Traffic(number, recorders[0].exchanges, reproduced)


def states_before(run: Run, saved: Mapping[str, Any]) -> StateStore:
    """A copy of the clients' states before the round of a checkpoint, in memory."""
    round_: int = saved["round"]
    written, store = run.states(saved), StateStore()
    for client in run.federation.client_ids:
        if data := written.read(client, (round_, 0)):
            store.write(client, (round_ - 1, 0), data)
    return store


@dataclass(frozen=True)
class Update:
    """The part of a client's messages that an attacker can use as its gradient."""

    model: Params
    """The weights before the update, as far as the server knows them."""
    direction: Params
    """The weights before minus the weights after, for the parameters that were sent."""
    signed: bool
    """Whether the sign is known: it is for a difference of models, not for a bare update."""


def updates(call: Call, reply: Reply, known: Params) -> list[Update]:
    """Finds what can be used as gradients in a reply, the largest first.

    Received parameters count as a model, and not as an update to one, if they are nearer to the
    known model than to zero. Sent parameters count as a model if they are nearer to a received
    model than to zero, or to the known one if none was received; otherwise they are an update.

    Args:
        call: The call that the client received.
        reply: What it sent back.
        known: The client's weights before the call, as far as they are known.
    """
    received = [params for params in params_in(call.payload, known) if _base_model(params, [known])]
    largest = max(received, key=Params.norm, default=known)
    found = []
    for sent in params_in(reply.content, known):
        whole = [model for model in received if sent.keys() <= model.keys()]
        before = _base_model(sent, whole or [known])
        moved = (sent if before is None else before - sent).without(BUFFERS)
        if moved and moved.norm() > 0:
            found.append(Update(known | largest | (before or {}), moved, before is not None))
    return sorted(found, key=lambda update: update.direction.size, reverse=True)


def complete_models(call: Call, reply: Reply, initial: Params) -> list[Params]:
    """The models in a reply that have all parameters.

    Args:
        call: The call that the client received.
        reply: What it sent back.
        initial: The client's initial weights, buffers included.
    """
    received = [*params_in(call.payload, initial), initial]
    needed = initial.without(BUFFERS, COMPANION).keys()
    return [
        sent
        for sent in params_in(reply.content, initial)
        if needed <= sent.keys() and _base_model(sent, received) is not None
    ]


def _base_model(sent: Params, models: Sequence[Params]) -> Params | None:
    """The model from which a sent one was trained; `None` if it does not seem to be a model."""
    parts = [
        Params({name: model[name] for name in sent})
        for model in models
        if sent.keys() <= model.keys()
    ]
    nearest = min(parts, key=lambda part: (part - sent).norm())
    return nearest if (nearest - sent).norm() < sent.norm() else None


def params_in(value: Any, like: Params) -> list[Params]:
    """All `Params` in a payload, nested ones included.

    Args:
        value: The payload.
        like: Only parameters with the names and shapes of these are kept.
    """
    if isinstance(value, Params):
        fitting = {n: t for n, t in value.items() if n in like and like[n].shape == t.shape}
        return [Params(fitting)] if fitting else []
    if not isinstance(value, Mapping | list | tuple):
        return []
    items = value.values() if isinstance(value, Mapping) else value
    return [params for item in items for params in params_in(item, like)]
