"""An evil client: everything that it can answer in the place of what it was asked for.

`TRAINING` and `SCORES` change an honest answer as Python values, `BYTES` as the bytes that travel.
`Evil` and `EvilThroughBytes` are engines in which one client plays all of these tricks in turn.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from typing import Any

import torch
from safetensors import torch as safetensors

from consort.core.limits import Limits
from consort.core.messages import Call, Reply
from consort.core.params import Params
from consort.core.wire import encode
from consort.engines.flower import Parts, reply_of
from consort.engines.middleware import Wrapper

Trick = Callable[[dict[str, Any]], Any]
EVIL = "c1"


# Answers to training


def in_params(change: Callable[[dict[str, Any]], Any]) -> Trick:
    """Changes the first `Params` of an answer, or its first tensor by name, wherever it is."""

    def trick(content: dict[str, Any]) -> Any:
        done = [False]

        def walk(value: Any) -> Any:
            if done[0]:
                return value
            if isinstance(value, Params) and len(value):
                done[0] = True
                changed = change(dict(value))
                return Params(changed) if isinstance(changed, dict) else changed
            if isinstance(value, torch.Tensor):
                done[0] = True
                changed = change({"t": value})
                found = changed.get("t") if isinstance(changed, dict) else None
                return [value] if found is None or found is value else found
            if isinstance(value, dict):
                return {key: walk(item) for key, item in value.items()}
            if isinstance(value, list):
                return [walk(item) for item in value]
            return value

        changed = walk(content)
        return changed if done[0] else {"nothing": "to change"}

    return trick


def each(change: Callable[[torch.Tensor], Any]) -> Trick:
    return in_params(lambda tensors: {name: change(tensor) for name, tensor in tensors.items()})


def first(change: Callable[[torch.Tensor], Any]) -> Trick:
    def one(tensors: dict[str, Any]) -> dict[str, Any]:
        name = next(iter(tensors))
        return tensors | {name: change(tensors[name])}

    return in_params(one)


def filled(value: float) -> Trick:
    def fill(tensor: torch.Tensor) -> torch.Tensor | None:
        return torch.full_like(tensor, value) if tensor.is_floating_point() else None

    return first(fill)


def entry(name: str, value: Any) -> Trick:
    return lambda content: content | {name: value}


def without_first(content: dict[str, Any]) -> dict[str, Any]:
    return dict(list(content.items())[1:]) if content else {"more": 1}


def renamed(content: dict[str, Any]) -> dict[str, Any]:
    return {f"{key}s": value for key, value in content.items()} or {"more": 1}


def nested(depth: int, value: Any = 1) -> Any:
    for _ in range(depth):
        value = [value]
    return value


def every_entry(value: Any) -> Trick:
    return lambda content: dict.fromkeys(content, value) or {"more": value}


HUGE = 10**400
TRAINING: dict[str, Trick] = {
    "nothing": lambda _: None,
    "a list": lambda content: list(content.values()),
    "a text": lambda _: "model",
    "a number": lambda _: 3,
    "an answer in a list": lambda content: [content],
    "scores": lambda _: {"global": {"test": {"n": 3, "tasks": {}}}},
    "an additional entry": entry("more", 1),
    "an additional model": entry("more", Params({"w": torch.zeros(3)})),
    "a missing entry": without_first,
    "renamed entries": renamed,
    "numbers for names of entries": lambda content: dict(enumerate(content.values())) or {0: 1},
    "a thousand entries": lambda content: content | {f"e{n}": 1 for n in range(1001)},
    "an entry with a huge name": entry("x" * 100_000, 1),
    "text in every entry": every_entry("1.0"),
    "None in every entry": every_entry(None),
    "NaN in every entry": every_entry(math.nan),
    "True in every entry": every_entry(True),
    "an empty dict in every entry, and more": lambda c: {k: {} for k in c} | {"more": {}},
    "a nested list in every entry": every_entry(nested(20)),
    "very deep nesting": lambda content: content | {"more": nested(90)},
    "a missing parameter": in_params(lambda tensors: dict(list(tensors.items())[1:]) or None),
    "an additional parameter": in_params(lambda tensors: tensors | {"w": torch.zeros(1)}),
    "a renamed parameter": in_params(lambda t: {f"{k}x": v for k, v in t.items()}),
    "numbers for names of parameters": in_params(lambda t: dict(enumerate(t.values()))),
    "a parameter of another shape": first(lambda tensor: torch.zeros(*tensor.shape, 2)),
    "a parameter without a shape": first(lambda tensor: tensor.new_zeros(())[None, None, None]),
    "an empty parameter": first(lambda tensor: tensor.new_zeros(0, 3)),
    "half precision": each(lambda tensor: tensor.half()),
    "other half precision": each(lambda tensor: tensor.bfloat16()),
    "double precision": each(lambda tensor: tensor.double()),
    "whole numbers": each(lambda tensor: tensor.long()),
    "truth values": each(lambda tensor: tensor.bool()),
    "NaN": filled(math.nan),
    "infinity": filled(math.inf),
    "minus infinity": filled(-math.inf),
    "huge values": filled(1e30),
    "parameters in a dict": in_params(lambda tensors: [dict(tensors)]),
    "parameters in a list": in_params(lambda tensors: [list(tensors.values())]),
    "a text for a model": in_params(lambda _: "gone"),
    "a model in a model": in_params(lambda tensors: [Params(tensors)]),
    **{
        f"examples = {name}": entry("examples", value)
        for name, value in {
            "-1": -1,
            "NaN": math.nan,
            "infinity": math.inf,
            "10^12": 10**12,
            "10^400": HUGE,
            "True": True,
            "a text": "30",
            "None": None,
            "a float": 30.0,
            "a list": [30],
            "a tensor": torch.tensor(30),
        }.items()
    },
}
"""By name: what is answered to a call that trains, given the honest answer."""
ONLY_HERE: dict[str, Trick] = {
    "an object": entry("more", object()),
    "a set": lambda content: set(content),
    "deeper nesting than Python can walk": lambda content: content | {"more": nested(100_000)},
    "complex numbers": each(lambda tensor: tensor.to(torch.complex64)),
    "float8": each(lambda tensor: tensor.to(torch.float8_e5m2)),
    "a sparse tensor": first(lambda tensor: tensor.float().to_sparse()),
    "a tensor without memory": first(lambda tensor: tensor.to("meta")),
}
"""Tricks with values that cannot be sent, so only an engine in this process can show them."""


# Answers to evaluations


def score_of(content: dict[str, Any]) -> tuple[str, str, dict[str, Any]]:
    """The first model and split in an honest answer, with its scores."""
    for model, splits in content.items():
        if isinstance(splits, dict):
            for split, scores in splits.items():
                return model, split, scores
    raise AssertionError("there are no scores")


def scored(**changes: Any) -> Trick:
    def trick(content: dict[str, Any]) -> dict[str, Any]:
        model, split, scores = score_of(content)
        return content | {model: content[model] | {split: scores | changes}}

    return trick


def metric(value: Any, name: str = "accuracy") -> Trick:
    def trick(content: dict[str, Any]) -> dict[str, Any]:
        _, _, scores = score_of(content)
        task = next(iter(scores["tasks"]))
        return scored(tasks={task: {name: value}})(content)

    return trick


def under(place: int, name: Any) -> Trick:
    """The scores under another name of the model (0), the split (1) or the task (2)."""

    def trick(content: dict[str, Any]) -> dict[str, Any]:
        model, split, scores = score_of(content)
        task, metrics = next(iter(scores["tasks"].items()))
        names: list[Any] = [model, split, task]
        names[place] = name
        return content | {names[0]: {names[1]: {"n": 3, "tasks": {names[2]: metrics}}}}

    return trick


FORGED = '1}\n{"round":1,"metric":"accuracy","value":1.0,"client":"c0","split":"test","n":9'
SCORES: dict[str, Trick] = {
    "nothing": lambda _: None,
    "a list": lambda content: list(content.values()),
    "a forged row in n": scored(n=FORGED),
    **{f"n = {n!r}": scored(n=n) for n in (-1, 1.5, True, "9", None, [9], math.nan, 10**13)},
    "no n": lambda content: {score_of(content)[0]: {"test": {"tasks": {}}}},
    "a client among the scores": scored(client="c0"),
    "tasks in a list": scored(tasks=[1]),
    "no tasks": scored(tasks=None),
    "a task of others": under(2, "other"),
    "a number for a task": under(2, 3),
    "a number for a split": under(1, 3),
    "a number for a model": under(0, 3),
    "a huge name of a model": under(0, "x" * 10_000),
    "a name with a line break": under(0, "a\nb"),
    "a name with an escape code": under(1, "\x1b[2J"),
    "no name": under(0, ""),
    **{
        f"a score = {name}": metric(value)
        for name, value in {
            "a text": "0.9",
            "a list": [0.9],
            "None": None,
            "True": True,
            "a huge number": HUGE,
            "a tensor": torch.tensor(0.9),
            "parts with a text": {"a": "0.9"},
            "parts with parts": {"a": {"b": 1}},
            "parts with a list": {"a": [1]},
            "numbered parts": {1: 0.5},
        }.items()
    },
    "a metric without a name": metric(0.5, ""),
    "a metric with a huge name": metric(0.5, "x" * 10_000),
    "too many scores": metric({str(number): 0.5 for number in range(100_001)}),
    "a number that the server measures": entry("bytes_up", 1.0),
    "a number of the algorithm": entry("attention", 0.5),
    "a text beside the scores": entry("epsilon", "low"),
    "a list beside the scores": entry("note", [1]),
    "a model beside the scores": entry("model", Params({"w": torch.zeros(3)})),
    "a tensor for scores": lambda content: {score_of(content)[0]: torch.zeros(3)},
    "splits in a list": lambda content: {score_of(content)[0]: [1]},
}
"""By name: what is answered to an evaluation, given the honest answer."""


# Answers that are of the right form, and yet extreme


def same(value: Any) -> Any:
    return value


def throughout(
    number: Callable[[float], Any] = same, tensor: Callable[[torch.Tensor], Any] = same
) -> Trick:
    """Changes all numbers that are not whole and all floating-point tensors of an answer."""

    def walk(value: Any) -> Any:
        if isinstance(value, Params):
            return Params({name: walk(item) for name, item in value.items()})
        if isinstance(value, torch.Tensor):
            return tensor(value) if value.is_floating_point() else value
        if isinstance(value, dict):
            return {key: walk(item) for key, item in value.items()}
        if isinstance(value, list):
            return [walk(item) for item in value]
        return number(value) if isinstance(value, float) else value

    return walk


def full(value: float) -> Trick:
    return throughout(tensor=lambda tensor: torch.full_like(tensor, value))


def constant(value: float) -> Trick:
    return throughout(number=lambda _: value)


EXTREME: dict[str, Trick] = {
    "zeros": full(0.0),
    "the largest values": full(1e15),
    "the smallest values": full(-1e15),
    "values near zero": full(1e-40),
    "large random values": throughout(tensor=lambda tensor: (torch.rand_like(tensor) - 0.5) * 2e15),
    "no examples": lambda answer: answer | ({"examples": 0} if "examples" in answer else {}),
    "numbers = 0": constant(0.0),
    "numbers = 1": constant(1.0),
    "numbers = -1": constant(-1.0),
    "the largest numbers": constant(1e15),
    "the smallest numbers": constant(-1e15),
    "numbers near zero": constant(1e-300),
    "empty maps": lambda answer: {k: {} if isinstance(v, dict) else v for k, v in answer.items()},
}
"""By name: answers that an algorithm has to bear; some are out of range in some algorithms."""


# Bytes


def frame(table: Any, data: bytes = b"") -> bytes:
    """A message with any header, as somebody can write it who does not use Consort."""
    header = table if isinstance(table, bytes) else json.dumps(table).encode()
    return struct.pack("<Q", len(header)) + header + data


def skeleton(value: Any, tensors: dict[str, Any] | None = None, data: bytes = b"") -> bytes:
    text = value if isinstance(value, str) else json.dumps(value)
    return frame({"__metadata__": {"consort": text}, **(tensors or {})}, data)


def one_tensor(kind: str = "F32", shape: Any = (1,), offsets: Any = (0, 4)) -> dict[str, Any]:
    return {"0": {"dtype": kind, "shape": shape, "data_offsets": offsets}}


def header(**changes: Any) -> bytes:
    return json.dumps({"error": "", "seconds": 0.1, "flops": 0, "late": False} | changes).encode()


def values(value: Any, tensors: Any = None, data: bytes = b"") -> Any:
    return content(skeleton(value, tensors, data))


def content(data: bytes | Callable[[bytes], bytes]) -> Callable[[Parts], Parts]:
    return lambda parts: parts | {"content": data(parts["content"]) if callable(data) else data}


def head(data: bytes) -> Callable[[Parts], Parts]:
    return lambda parts: parts | {"header": data}


FOUR = bytes(4)
MODEL = {"map": [["model", {"params": [["w", 0]]}]]}
BYTES: dict[str, Callable[[Parts], Parts]] = {
    "no parts": lambda _: {},
    "no content": lambda parts: {"header": parts["header"]},
    "no header": lambda parts: {"content": parts["content"]},
    "an additional part": lambda parts: parts | {"more": b""},
    "an empty header": head(b""),
    "a header that is not JSON": head(b"{"),
    "a header that is a list": head(b"[]"),
    "a header in UTF-16": head(header().decode().encode("utf-16")),
    "recursion in the header": head(b'{"error":' + b"[" * 60_000),
    "a huge header": head(header(error="x" * 1_000_000)),
    "a header with a key twice": head(header()[:-1] + b',"flops":0}'),
    "a header with more": head(header(more=1)),
    "an error that is a list": head(header(error=["late"])),
    "seconds = NaN": head(header(seconds=math.nan)),
    "negative seconds": head(header(seconds=-1)),
    "endless seconds": head(header(seconds=1e300)),
    "seconds as a text": head(header(seconds="1")),
    "negative operations": head(header(flops=-1)),
    "huge operations": head(header(flops=HUGE)),
    "lateness as a text": head(header(late="no")),
    "an empty message": content(b""),
    "a short message": content(b"short"),
    "random bytes": content(bytes(range(256)) * 4),
    "a message without its end": content(lambda data: data[:-1]),
    "half of a message": content(lambda data: data[: len(data) // 2]),
    "a message with more at its end": content(lambda data: data + b"\0"),
    "a message that promises a huge header": content(struct.pack("<Q", 2**63) + b"{}"),
    "recursion in the message": content(frame(b"[" * 60_000)),
    "recursion in the values": values("[" * 60_000),
    "deep values": values('{"tuple":[' * 200 + "]}" * 200),
    "a list of values": values([1]),
    "a record": values({"record": "Server", "fields": {"map": []}}),
    "numbers for names": values({"map": [["model", {"params": [[3, 0]]}]]}, one_tensor(), FOUR),
    "lists for names": values({"map": [[["model"], 1]]}),
    "float8": values(MODEL, one_tensor("F8_E5M2", (4,)), FOUR),
    "complex numbers": values(MODEL, one_tensor("C64", (1,), (0, 8)), bytes(8)),
    "10,000 references to one tensor": content(
        skeleton({"map": [["model", {"params": [[f"p{n}", 0] for n in range(10_000)]}]]},
                 one_tensor("F32", (1000,), (0, 4000)), bytes(4000))
    ),
    "a tensor that is not used": values({"map": []}, one_tensor(), FOUR),
    "a tensor that is not there": values(MODEL),
    "a negative reference": values({"map": [["a", {"tensor": -1}]]}, one_tensor(), FOUR),
    "a true reference": values({"map": [["a", {"tensor": False}]]}, one_tensor(), FOUR),
    "a shape that does not fit": values(MODEL, one_tensor(shape=(2,)), FOUR),
    "a negative shape": values(MODEL, one_tensor(shape=(-1, -1)), FOUR),
    "a huge empty shape": values(MODEL, one_tensor(shape=(0, 2**60), offsets=(0, 0))),
    "places beyond the end": values(MODEL, one_tensor(offsets=(4, 8)), FOUR),
    "places as texts": values(MODEL, one_tensor(offsets=("0", "4")), FOUR),
    "an entry twice": values({"map": [["a", 1], ["a", 2]]}),
    "a parameter twice": content(
        skeleton({"map": [["model", {"params": [["w", 0], ["w", 1]]}]]},
                 one_tensor() | {"1": one_tensor(offsets=(4, 8))["0"]}, bytes(8))
    ),
    "a key twice": content(frame(b'{"__metadata__":{"consort":"[]","consort":"[]"}}')),
    "a huge number": values('{"map":[["examples",1' + "0" * 3000 + "]]}"),
    "half a character": values({"map": [["\ud800", 1]]}),
    "a huge text": values({"map": [["a", "x" * 200_000]]}),
    "a million values": values("[" + "0," * 1_000_000 + "0]"),
    "more bytes than the answer needs": content(
        skeleton(MODEL, one_tensor("U8", (8 << 20,), (0, 8 << 20)), bytes(8 << 20))
    ),
    "metadata that are a number": content(frame({"__metadata__": {"consort": 3}})),
    "metadata that are a list": content(frame({"__metadata__": ["consort"]})),
    "no metadata": content(frame({})),
}  # fmt: skip
"""By name: what is sent in the place of the bytes of an honest answer."""


# The evil client in a run


@dataclass
class Evil(Wrapper):
    """An engine in which one client plays a trick in every answer."""

    tricks: dict[str, Trick] = field(default_factory=lambda: TRAINING | ONLY_HERE)
    scores: dict[str, Trick] = field(default_factory=lambda: SCORES)
    played: list[str] = field(default_factory=list)
    start: int = 0
    """The first trick."""
    client: str = EVIL
    """The name of the evil client."""

    def __post_init__(self) -> None:
        tricks, scores = list(self.tricks.items()), list(self.scores.items())
        self._training = islice(cycle(tricks), self.start % len(tricks), None)
        self._scores = islice(cycle(scores), self.start % len(scores), None)

    def deliver(self, calls: Sequence[Call]) -> Iterator[Reply]:
        for call, reply in zip(calls, self.engine.deliver(calls), strict=True):
            yield (
                self.answered(call, reply)
                if call.client == self.client
                else self.passed(call, reply)
            )

    def passed(self, call: Call, reply: Reply) -> Reply:
        return reply

    def answered(self, call: Call, reply: Reply) -> Reply:
        assert reply.error is None, reply.error.traceback
        name, trick = next(self._scores if call.evaluation else self._training)
        self.played.append(name)
        return Reply(self.client, trick(dict(reply.content)))


@dataclass
class EvilThroughBytes(Evil):
    """The same with answers that travel as bytes, to be read within the limits of each call."""

    tricks: dict[str, Any] = field(default_factory=lambda: TRAINING | BYTES)
    scores: dict[str, Any] = field(default_factory=lambda: SCORES | BYTES)
    limits: Callable[[Call], Limits] = field(default=lambda _: Limits())

    def passed(self, call: Call, reply: Reply) -> Reply:
        parts = {"header": header(), "content": encode(reply.content)}
        return reply_of(call.client, parts, self.limits(call))

    def answered(self, call: Call, reply: Reply) -> Reply:
        assert reply.error is None, reply.error.traceback
        name, trick = next(self._scores if call.evaluation else self._training)
        self.played.append(name)
        honest = {"header": header(), "content": encode(reply.content)}
        if name not in BYTES:
            return reply_of(self.client, honest | {"content": written(trick(dict(reply.content)))})
        return reply_of(self.client, trick(honest), self.limits(call))


def written(answer: Any) -> bytes:
    """The bytes of an answer, of which `encode` would write only those that are valid."""
    tensors: list[torch.Tensor] = []
    text = json.dumps(packed(answer, tensors))
    plain = {str(place): tensor.contiguous() for place, tensor in enumerate(tensors)}
    return safetensors.save(plain, metadata={"consort": text})


def packed(value: Any, tensors: list[torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        tensors.append(value.clone())
        return {"tensor": len(tensors) - 1}
    if isinstance(value, Params):
        entries = [[name, packed(tensor, tensors)] for name, tensor in value.items()]
        return {"params": [[n, t["tensor"] if isinstance(t, dict) else t] for n, t in entries]}
    if isinstance(value, dict):
        return {"map": [[key, packed(item, tensors)] for key, item in value.items()]}
    if isinstance(value, list):
        return [packed(item, tensors) for item in value]
    return value
