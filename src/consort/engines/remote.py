"""Chunks of calls as bytes, and the far side that answers them with bytes.

A client's memory travels too: it is kept where the run is, comes with the call and goes back with
the answer. So any far side can answer for any client, and what a dead one did is as if it had
never been.
"""

from __future__ import annotations

import json
import socket
import traceback
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

import consort
from consort.core.messages import Call, Payload, Reply, State
from consort.core.registry import load_object
from consort.core.wire import decode, encode
from consort.engines.choice import Origin
from consort.engines.host import ClientHost
from consort.engines.states import Stamp, StateStore
from consort.errors import ClientFailed, ConsortError, Failure

Chunk = Sequence[Call]
Answer = tuple[Reply, bytes]
"""A reply, and what the client remembers from now on; nothing if that is as before."""


def write_plan(host: ClientHost, origin: Origin) -> bytes:
    """What a far side must know to be this host."""
    return json.dumps(
        {
            "versions": _versions(),
            "place": origin.place,
            "arguments": origin.arguments,
            "host": [host.seed, host.rounds, host.tuning_epochs],
        }
    ).encode()


def write_order(chunk: Chunk, delivery: int, common: set[str], store: StateStore) -> bytes:
    """A chunk of calls without what is common to a delivery, but with the clients' memory."""
    own = [{k: v for k, v in call.payload.items() if k not in common} for call in chunk]
    states = [_as_tensor(store.read(call.client, call.before)) for call in chunk]
    headers = [call.header for call in chunk]
    return encode({"delivery": delivery, "calls": headers, "own": own, "states": states})


def read_answers(data: bytes) -> list[Answer]:
    """What came back for a chunk."""
    return [
        (Reply(client, content, ClientFailed(*error) if error else None, *work), _as_bytes(state))
        for client, content, error, work, state in decode(data)
    ]


class FarSide:
    """Builds the clients of a run where it stands, and answers for any of them."""

    def __init__(self) -> None:
        self._host: ClientHost | None = None
        self._store = Carried()
        self._shared: tuple[int, Payload] = (0, {})

    def prepare(self, plan: bytes) -> str:
        """Becomes the host of a run; what stands in the way is the answer, or nothing."""
        self._shared = (0, {})
        try:
            self._host = self._build(json.loads(plan))
        except ConsortError as error:
            return f"{socket.gethostname()}: {error}"
        except Exception:
            return f"{socket.gethostname()}: {traceback.format_exc()}"
        return ""

    def answer(self, shared: bytes, order: bytes) -> bytes:
        """Answers a chunk of calls; `shared` is what all of a delivery have in common."""
        if self._host is None:
            raise Failure("the far side was asked before it was prepared")
        content = decode(order)
        if content["delivery"] != self._shared[0]:
            self._shared = content["delivery"], decode(shared)
        calls = [
            Call.from_header(header, self._shared[1] | own)
            for header, own in zip(content["calls"], content["own"], strict=True)
        ]
        clients = [call.client for call in calls]
        self._store.arrived = dict(zip(clients, map(_as_bytes, content["states"]), strict=True))
        self._store.leaving = {}
        return encode([self._written(reply) for reply in self._host.answer(calls)])

    def _build(self, plan: dict[str, Any]) -> ClientHost:
        here = _versions()
        if plan["versions"] != here:
            raise Failure(f"it has {here}, the run {plan['versions']}: install the same")
        federation, algorithm = load_object(plan["place"])(**plan["arguments"])
        federation.compute.apply()
        seed, rounds, tuning_epochs = plan["host"]
        return ClientHost(federation, algorithm, seed, rounds, self._store, tuning_epochs)

    def _written(self, reply: Reply) -> list[Any]:
        error = reply.error and [reply.error.client, reply.error.reason, reply.error.traceback]
        state = _as_tensor(self._store.leaving.get(reply.client, b""))
        return [reply.client, reply.content, error, [reply.seconds, reply.flops], state]


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
