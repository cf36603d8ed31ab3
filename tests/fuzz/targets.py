"""Everything that takes what others send. Add an entry point with `@target(seeds, mutator)`.

A target takes any bytes. It returns, or raises `Refused` or `UsageError`: everything else is a
finding.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

from tests.contract.helpers import make, overhear
from tests.fuzz.mutation import Mutator, mutate_message, mutate_text
from tests.helpers import TWO_TASKS, tiny_federation

from consort.core.algorithm import Clients
from consort.core.limits import Limits, read_json
from consort.core.messages import Call
from consort.core.scores import LIMITS, check_scores
from consort.core.wire import decode, encode, tensors_in
from consort.engines.answers import Answers
from consort.engines.flower import reply_of
from consort.engines.middleware import Checked, RefusedReply
from consort.engines.scripted import Scripted
from consort.errors import ClientFailed, NoReplies, Refused

SMALL = Limits(bytes=1 << 20, header=1 << 18)
ALGORITHMS = (
    "affr", "cfl", "fedavg", "fedavg_parts", "fedfew", "fedfew_plus", "fedgen", "fedgh", "fedhca2",
    "fedhca2_plus", "fedkd", "fedmgda", "fedmh", "fedmh_plus", "fedper", "fedproto", "fedsta",
    "fml", "ifca", "matfl", "mfed_plus", "own_or_common", "qfedavg", "scaffold",
)  # fmt: skip
"""One for every kind of answer."""


@dataclass(frozen=True)
class Target:
    """An entry point."""

    name: str
    run: Callable[[bytes], Any]
    seeds: Callable[[], Iterable[bytes]]
    """Inputs that it accepts, to begin with."""
    mutate: Mutator


TARGETS: dict[str, Target] = {}


def target(
    seeds: Callable[[], Iterable[bytes]], mutate: Mutator
) -> Callable[[Callable[[bytes], Any]], Callable[[bytes], Any]]:
    """Registers a function as an entry point, under its own name."""

    def register(run: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
        TARGETS[run.__name__] = Target(run.__name__, run, seeds, mutate)
        return run

    return register


# Answers of honest clients, to begin with


@dataclass(frozen=True)
class Scene:
    """A round of an algorithm: its clients, what they were asked, and what they answered."""

    algorithm: Any
    answers: Answers
    server: Any
    calls: dict[tuple[str, str], tuple[Call, dict[str, Any], bytes]]
    """By method and client, the call, the honest answer and its bytes."""

    @property
    def evil(self) -> list[tuple[Call, bytes]]:
        """The calls of the evil client and its honest answers, as bytes."""
        return [
            (call, data) for (_, client), (call, _, data) in self.calls.items() if client == "c1"
        ]


@cache
def scene(name: str) -> Scene:
    """The second round of an algorithm, in which clients remember the first one."""
    algorithm = make(name, 3)
    clients = tiny_federation(3, tasks=TWO_TASKS)
    exchanges, servers = overhear(algorithm, clients)
    table = algorithm.companion
    about = clients if table is None else clients.accompanied(table)
    calls = {
        (each.call.method, each.call.client): (each.call, each.reply.content, each.answered)
        for each in exchanges
        if each.call.round == 2 or each.call.method not in ("train", "test")
    }
    return Scene(algorithm, Answers.sent(about, algorithm), servers[1], calls)


def numbered(number: int, data: bytes) -> bytes:
    return bytes([number]) + data


def answers_of_all(method: str | None = None) -> list[bytes]:
    """For every algorithm, its number and an honest answer."""
    found = []
    for number, name in enumerate(ALGORITHMS):
        for call, data in scene(name).evil:
            if call.evaluation == (method == "test"):
                found.append(numbered(number, data))
    return found


def mutate_numbered(data: bytes, random: Any) -> bytes:
    """Keeps the number of the algorithm."""
    return data[:1] + mutate_message(data[1:], random)


def chosen(data: bytes) -> tuple[Scene, bytes]:
    if not data:
        raise Refused("nothing")
    return scene(ALGORITHMS[data[0] % len(ALGORITHMS)]), data[1:]


# The entry points


def messages() -> list[bytes]:
    return [encode({}), encode([1, (2, None), {"a": {3: 0.5}}]), *(d[1:] for d in answers_of_all())]


@target(messages, mutate_message)
def message(data: bytes) -> Any:
    """Bytes that become a payload."""
    return encode(decode(data, limits=SMALL))


def headers() -> list[bytes]:
    calls = [Call("c1", "train", 3, 1, 0, {}), Call("bank-1", "secure.keys", 1, 0, 2, {})]
    return [json.dumps(call.header).encode() for call in calls]


@target(headers, mutate_text)
def call_header(data: bytes) -> Any:
    """The header of a call; an accepted one names a file within its folder."""
    call = Call.from_header(read_json(data, SMALL), {})
    assert "/" not in f"{call.client}{call.round}{call.step}"
    assert call.client not in (".", "..")
    return call.header


def replies() -> list[bytes]:
    header = json.dumps({"error": "", "seconds": 0.5, "flops": 3, "late": False}).encode()
    failed = json.dumps({"error": "broke", "seconds": 0, "flops": 0, "late": True}).encode()
    return [bytes([len(h)]) + h + encode({"examples": 3}) for h in (header, failed)]


def mutate_reply(data: bytes, random: Any) -> bytes:
    length = data[0] if data else 0
    header, content = data[1 : 1 + length], data[1 + length :]
    if random.random() < 0.6:
        header = mutate_text(header, random)[:255]
    else:
        content = mutate_message(content, random)
    return bytes([len(header)]) + header + content


@target(replies, mutate_reply)
def reply(data: bytes) -> Any:
    """The parts of an answer, as they come from Flower."""
    length = data[0] if data else 0
    parts = {"header": data[1 : 1 + length], "content": data[1 + length :]}
    found = reply_of("c1", parts, SMALL)
    assert found.error is None or isinstance(found.error, ClientFailed)
    assert found.error is None or str(found.error).isprintable()
    assert 0 <= found.seconds < 1e10
    if isinstance(found.error, RefusedReply):
        raise Refused(found.error.reason)


@target(answers_of_all, mutate_numbered)
def answer(data: bytes) -> Any:
    """An answer to a call, against what the algorithm declares."""
    here, data = chosen(data)
    content = decode(data, limits=SMALL)
    calls = [call for call, _ in here.evil if not call.evaluation]
    for call in calls[1:]:
        with suppress(Refused):
            return here.answers.check(call, content, tensors_in(content))
    return here.answers.check(calls[0], content, tensors_in(content))


@target(lambda: answers_of_all("test"), mutate_numbered)
def scores(data: bytes) -> Any:
    """The scores of an evaluation."""
    here, data = chosen(data)
    content = decode(data, limits=LIMITS)
    if not isinstance(content, dict):
        raise Refused("no dict")
    check_scores(content, None, here.answers.known("c1"))
    for model, splits in content.items():
        for split, found in splits.items() if isinstance(splits, dict) else ():
            assert type(found["n"]) is int
            assert isinstance(model + split, str)


@target(answers_of_all, mutate_numbered)
def training_round(data: bytes) -> Any:
    """A whole round of an algorithm in which one answer is the input; the others are honest."""
    here, data = chosen(data)
    content = decode(data, limits=SMALL)

    def script(call: Call) -> Any:
        _, honest, _ = here.calls[call.method, call.client]
        return content if call.client == "c1" else honest

    engine = Checked(Scripted(script), here.answers)
    clients = Clients(("c0", "c1", "c2"), 2, 2, 0, engine, 3)
    try:
        server = here.algorithm.round(here.server, clients)
    except NoReplies:
        return
    for name, tensor in tensors_in(vars(server)):
        assert isinstance(name, str)
        assert not tensor.is_complex()
