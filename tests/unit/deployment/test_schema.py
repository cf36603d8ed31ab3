"""Whatever arrives is a checked object or is refused, in one sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.adversaries.evil_server import replaced, values_in

from consort.core.arrival import check_plain
from consort.core.wire import decode, encode
from consort.deployment.schema import Ask, Describe, Initial, read_description, read_message
from consort.engines.answer_header import read_answer_header
from consort.errors import Refused

DIGEST = "0123456789abcdef" * 2
STUDY = {"recipe": {"a": [1]}, "algorithm": "x", "seed": 0, "version": "1", "digest": DIGEST}
USUAL: dict[str, Any] = {
    "session": DIGEST, "number": 1, "seconds": 1.5, "known": False, "study": STUDY, "told": None,
}  # fmt: skip
DESCRIBE = USUAL | {"kind": "describe"}
INITIAL = USUAL | {"kind": "initial", "companion": None, "draw": 0}
CALL = USUAL | {
    "kind": "call", "companion": {"name": "mlp"}, "counted": [1, 0], "told": DIGEST,
    "call": ["a-0", "train", 1, 0, 0],
}  # fmt: skip
DESCRIPTION: dict[str, Any] = {
    "model": {"name": "mlp", "hidden": (8,)},
    "tasks": {"classify": {"metric": "accuracy", "higher_is_better": True}},
    "parameters": 10, "initial": DIGEST, "train": 3, "validation": 1, "test": 1,
}  # fmt: skip
ANSWER = {"error": "", "seconds": 0.5, "flops": 0, "late": False}
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


def dumped(value: Any) -> bytes:
    return json.dumps(value).encode()


def refusal(read: Callable[[Any], Any], arrived: Any) -> str:
    """Why something is refused; empty if it is read. Nothing else may happen."""
    try:
        read(arrived)
    except Refused as error:
        return str(error)
    return ""


def test_honest_messages_are_read():
    assert isinstance(read_message(dumped(DESCRIBE)), Describe)
    assert isinstance(read_message(dumped(INITIAL)), Initial)
    message = read_message(dumped(CALL))
    assert isinstance(message, Ask)
    assert message.call == ("a-0", "train", 1, 0, 0)
    assert message.counted == (1, 0)
    assert read_answer_header(dumped(ANSWER)).seconds == 0.5
    assert read_description(DESCRIPTION) == DESCRIPTION


WRONG = (
    None, True, -1, 1.5, 10**30, float("nan"), float("inf"), "", "x\n", "\x1b[2J", "x" * 10**6, [],
    {}, [[]], {"a": 1}, "../../x", "0" * 33,
)  # fmt: skip


@pytest.mark.parametrize("header", [DESCRIBE, INITIAL, CALL, ANSWER])
def test_every_key_is_needed_typed_and_bounded(header):
    """Each value is replaced by each of many others, of which most must be refused."""
    read = read_answer_header if header is ANSWER else read_message
    refused = 0
    for path, value in values_in(header):
        if path[:2] == ("study", "recipe") or (path[:1] == ("companion",) and len(path) > 1):
            continue  # free tables: bounded, and checked by the policy
        if path and isinstance(path[-1], str) and path != ("study", "title"):
            parent = dict(header if len(path) == 1 else header["study"])
            del parent[path[-1]]
            less = parent if len(path) == 1 else header | {"study": parent}
            with pytest.raises(Refused):
                read(dumped(less))
        for other in WRONG:
            if type(other) is type(value):
                continue
            reason = refusal(read, dumped(replaced(header, path, other)))
            refused += bool(reason)
            assert "\n" not in reason
            assert len(reason) < 400
            if not reason:
                nullable = path in (("told",), ("companion",), ("counted",))
                number = path == ("seconds",) and type(other) in (int, float)
                assert (nullable and (other is None or isinstance(other, dict))) or number, path
    assert refused > 50
    with pytest.raises(Refused, match="Extra inputs are not permitted"):
        read(dumped(header | {"evaluation": True}))


@pytest.mark.parametrize(
    "data",
    [
        None, "text", b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 10**5, b"{" * 10**5,
        b'{"kind":' * 10**4, b'"' + b"x" * (2 << 20) + b'"', b'{"kind": NaN}',
        dumped(DESCRIBE | {"number": 1})[:-1] + b', "number": ' + b"9" * 5000 + b"}",
    ],
)  # fmt: skip
def test_what_is_no_message_is_refused(data):
    for read in (read_message, read_answer_header):
        with pytest.raises(Refused):
            read(data)


@settings(max_examples=200)
@given(plain, st.sampled_from([DESCRIBE, INITIAL, CALL]), st.randoms(use_true_random=False))
def test_any_value_anywhere_is_read_or_refused(value, header, random):
    path, _ = random.choice(list(values_in(header)))
    for read in (read_message, read_answer_header):
        assert "\n" not in refusal(read, dumped(replaced(header, path, value)))


@settings(max_examples=100)
@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data):
    for read in (read_message, read_answer_header):
        with pytest.raises(Refused):
            read(data)


@settings(max_examples=200)
@given(plain, st.randoms(use_true_random=False))
def test_any_description_is_read_or_refused(value, random):
    path, _ = random.choice([p for p in values_in(DESCRIPTION) if p[0] and "hidden" not in p[0]])
    sent = encode(replaced(DESCRIPTION, path, value))
    assert "\n" not in refusal(lambda data: read_description(decode(data)), sent)


@pytest.mark.parametrize(
    "changes",
    [
        {"train": 10**30}, {"train": True}, {"test": -1}, {"parameters": 0}, {"initial": "x"},
        {"tasks": {}}, {"tasks": {"t": {"metric": "x"}}}, {"tasks": {"t": {}}}, {"tasks": []},
        {"tasks": {"\x1b[2J": {"metric": "x", "higher_is_better": True}}}, {"model": {}},
        {"model": {"name": 3}}, {"model": "mlp"}, {"more": 1}, {"measured": {"x": 1}},
        {"model": {"name": "mlp", "x": torch.zeros(1)}}, {"local": {"lr": float("nan")}},
        {"measured": {"x": {"metric": "a", "higher_is_better": True, "more": torch.zeros(1)}}},
        {"model": {"name": "mlp", "x": {1: 2}}},
    ],
)  # fmt: skip
def test_impossible_descriptions_are_refused(changes):
    with pytest.raises(Refused, match="its description is not valid"):
        read_description(DESCRIPTION | changes)


def test_tables_are_bounded():
    check_plain({"a": [1, 2.0, None, True, "x", ({"b": 1},)]})
    deep: Any = 1
    for _ in range(20):
        deep = [deep]
    for value in (deep, [0] * 20_000, "x" * 20_000, 10**30, float("inf"), {1: 2}, torch.zeros(1)):
        with pytest.raises(ValueError, match=r"^its? "):
            check_plain(value)
