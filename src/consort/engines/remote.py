"""Chunks of calls as bytes, and the far side that answers them with bytes.

A client's memory travels too: it is kept where the run is, comes with the call and goes back with
the answer. So any far side can answer for any client, and what a dead one did is as if it had
never been.
"""

from __future__ import annotations

import json
import socket
import traceback
from dataclasses import astuple
from typing import Any

import torch
from torch import Tensor

import consort
from consort.core.limits import OWN
from consort.core.messages import State
from consort.core.registry import load_object
from consort.core.wire import decode, encode
from consort.engines.choice import Origin
from consort.engines.host import ClientHost
from consort.engines.scheduler import Answer, Chunk, Responder, order_of, reply_of
from consort.engines.states import Stamp, StateStore
from consort.errors import ConsortError, Failure
from consort.training.tuning import Tuning


def write_plan(host: ClientHost, origin: Origin) -> bytes:
    """What a far side must know to be this host."""
    return json.dumps(
        {
            "versions": _versions(),
            "place": origin.place,
            "arguments": origin.arguments,
            "host": [host.seed, host.rounds],
            "tuning": astuple(host.tuning),
        }
    ).encode()


def write_order(chunk: Chunk, delivery: int, common: set[str], store: StateStore) -> bytes:
    """A chunk of calls without what is common to a delivery, but with the clients' memory."""
    states = [_as_tensor(store.read(call.client, call.before)) for call in chunk]
    return encode(order_of(chunk, delivery, common) | {"states": states})


def read_answers(data: bytes) -> list[Answer]:
    """What came back for a chunk."""
    return [(reply_of(*answer), _as_bytes(state)) for *answer, state in decode(data, limits=OWN)]


class FarSide:
    """Builds the clients of a run where it stands, and answers for any of them."""

    def __init__(self) -> None:
        self._responder: Responder | None = None
        self._store = Carried()

    def prepare(self, plan: bytes) -> str:
        """Becomes the host of a run; what stands in the way is the answer, or nothing."""
        try:
            self._responder = Responder(self._build(json.loads(plan)))
        except ConsortError as error:
            return f"{socket.gethostname()}: {error}"
        except Exception:
            return f"{socket.gethostname()}: {traceback.format_exc()}"
        return ""

    def answer(self, shared: bytes, order: bytes) -> bytes:
        """Answers a chunk of calls; `shared` is what all of a delivery have in common."""
        if self._responder is None:
            raise Failure("the far side was asked before it was prepared")
        content = decode(order, limits=OWN)
        clients = [header[0] for header in content["calls"]]
        self._store.arrived = dict(zip(clients, map(_as_bytes, content["states"]), strict=True))
        self._store.leaving = {}
        answers = self._responder.answer(content, lambda: dict(decode(shared, limits=OWN)))
        return encode([[content, rest, self._leaving(rest[0])] for content, rest in answers])

    def _build(self, plan: dict[str, Any]) -> ClientHost:
        here = _versions()
        if plan["versions"] != here:
            raise Failure(f"it has {here}, the run {plan['versions']}: install the same")
        federation, algorithm = load_object(plan["place"])(**plan["arguments"])
        federation.compute.apply()
        tuning = Tuning(*plan["tuning"])
        seed, rounds = plan["host"]
        return ClientHost(federation, algorithm, seed, rounds, self._store, tuning)

    def _leaving(self, client: str) -> Tensor | None:
        return _as_tensor(self._store.leaving.get(client, b""))


class Carried(StateStore):
    """States that came with the calls, and those that go back with the answers."""

    def __init__(self) -> None:
        super().__init__()
        self.arrived: dict[str, bytes] = {}
        self.leaving: dict[str, bytes] = {}

    def read(self, client: str, before: Stamp) -> bytes:  # noqa: ARG002
        """What came is what was written before the call."""
        return self.arrived[client]

    def save(self, client: str, stamp: Stamp, state: State) -> None:  # noqa: ARG002
        """Gives a state to the answer."""
        self.leaving[client] = encode(state)


def _versions() -> dict[str, str]:
    return {"consort": consort.__version__, "torch": torch.__version__}


def _as_tensor(data: bytes) -> Tensor | None:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else None


def _as_bytes(tensor: Tensor | None) -> bytes:
    return b"" if tensor is None else tensor.numpy().tobytes()
