"""Messages of strangers: bounded in every respect, and refused before they cost anything."""

from __future__ import annotations

import json
import struct
import time
import tracemalloc

import pytest
import torch
from safetensors import torch as safetensors

from consort.core.limits import OWN, Limits, read_json
from consort.core.params import Params
from consort.core.wire import decode, encode
from consort.errors import Refused

ANSWER = {"model": Params({"w": torch.arange(6.0), "b": torch.ones(2)}), "examples": 3}


def frame(table: object, data: bytes = b"") -> bytes:
    """The bytes of a message with this header, as a stranger could make them."""
    header = table if isinstance(table, bytes) else json.dumps(table).encode()
    return struct.pack("<Q", len(header)) + header + data


def message(skeleton: object, tensors: dict | None = None, data: bytes = b"") -> bytes:
    text = skeleton if isinstance(skeleton, str) else json.dumps(skeleton)
    return frame({"__metadata__": {"consort": text}, **(tensors or {})}, data)


def entry(dtype="F32", shape=(1,), begin=0, end=4) -> dict:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


ONE = {"0": entry()}
FOUR = bytes(4)


def test_the_frame_of_these_tests_is_accepted():
    assert decode(message({"params": [["w", 0]]}, ONE, FOUR))["w"].tolist() == [0.0]


@pytest.mark.parametrize(("limits", "reason"), [
    (Limits(bytes=100), "bytes, more than 100"),
    (Limits(header=100), "bytes, more than 100"),
    (Limits(tensors=1), "2 tensors, more than 1"),
    (Limits(items=3), "more than 3 values"),
    (Limits(depth=1), "nested too deeply"),
    (Limits(text=3), "more than 3"),
])  # fmt: skip
def test_every_limit_is_enforced(limits, reason):
    decode(encode(ANSWER), limits=Limits())
    with pytest.raises(Refused, match=reason):
        decode(encode(ANSWER), limits=limits)


@pytest.mark.parametrize("data", [
    frame(b"[" * 100_000),
    frame(b'{"__metadata__":{"consort":' + b"[" * 100_000),
    message("[" * 100_000),
    message("[" * 500 + "]" * 500),
    message('{"tuple":[' * 400 + "]}" * 400),
], ids=["header", "metadata", "skeleton", "lists", "tuples"])  # fmt: skip
def test_deep_nesting_is_refused_without_a_recursion_error(data):
    with pytest.raises(Refused):
        decode(data)


@pytest.mark.parametrize("kind", ["F8_E5M2", "F8_E4M3", "C64", "U16", "U32", "U64", "I4", "", 3])
def test_types_that_no_model_has_are_refused(kind):
    with pytest.raises(Refused):
        decode(message([{"tensor": 0}], {"0": entry(dtype=kind)}, FOUR))


@pytest.mark.parametrize("places", [
    {"0": entry(end=8)},
    {"0": entry(begin=4, end=8)},
    {"0": entry(begin=-4, end=0)},
    {"0": entry(shape=(-1, -1))},
    {"0": entry(shape=(True,))},
    {"0": entry(shape=(1.0,))},
    {"0": entry(shape=("1",))},
    {"0": entry(shape=(2**62, 4))},
    {"0": entry(shape=(0, 2**62), end=0), "1": entry()},
    {"0": entry(), "1": entry()},
    {"0": entry(begin=False)},
    {"0": {**entry(), "more": 1}},
    {"0": {"dtype": "F32"}},
    {"0": []},
    {"0": None},
    {"1": entry()},
    {"00": entry()},
], ids=str)  # fmt: skip
def test_tables_of_tensors_that_do_not_fit_the_bytes_are_refused(places):
    skeleton = [{"tensor": number} for number in range(len(places))]
    with pytest.raises(Refused):
        decode(message(skeleton, places, FOUR))


@pytest.mark.parametrize("skeleton", [
    [{"tensor": 0}, {"tensor": 0}],
    [],
    [{"tensor": -1}],
    [{"tensor": True}],
    [{"tensor": 1}],
    [{"tensor": 0, "more": 1}],
    [{"params": [["a", 0], ["b", 0]]}],
    [{"params": [[1, 0]]}],
    [{"params": [[None, 0]]}],
    [{"params": [["a", False]]}],
    [{"params": [["a", 0, 1]]}],
    [{"tensor": 0}, {"map": [["a", 1], ["a", 2]]}],
    [{"tensor": 0}, {"map": [[True, 1]]}],
    [{"tensor": 0}, {"map": [[1.0, 1]]}],
    [{"tensor": 0}, "\ud800"],
    [{"tensor": 0}, {"map": [["\udfff", 1]]}],
    [{"tensor": 0}, 10**30],
], ids=str)  # fmt: skip
def test_every_tensor_is_used_once_and_every_name_is_a_text(skeleton):
    with pytest.raises(Refused):
        decode(message(skeleton, ONE, FOUR))


def test_tensors_are_used_in_order():
    two = {"0": entry(), "1": entry(begin=4, end=8)}
    skeleton = [{"tensor": 1}, {"tensor": 0}]
    with pytest.raises(Refused):
        decode(message(skeleton, two, bytes(8)))


@pytest.mark.parametrize("text", [
    b'{"__metadata__":{"consort":"[]"},"__metadata__":{"consort":"[]"}}',
    b'{"__metadata__":{"consort":"[]","consort":"[]"}}',
    b'{"__metadata__":{"consort":"{\\"tuple\\":[],\\"tuple\\":[]}"}}',
])  # fmt: skip
def test_a_key_that_occurs_twice_is_refused(text):
    with pytest.raises(Refused, match="twice"):
        decode(frame(text))


@pytest.mark.parametrize("text", [
    b'{"__metadata__":{"consort":5}}',
    b'{"__metadata__":{"consort":null}}',
    b'{"__metadata__":[]}',
    b"[]",
    b"3",
    '{"__metadata__":{"consort":"[]"}}'.encode("utf-16"),
])  # fmt: skip
def test_headers_of_another_form_are_refused(text):
    with pytest.raises(Refused):
        decode(frame(text))


def test_truth_values_are_0_or_1():
    table = {"0": entry("BOOL", (2,), 0, 2)}
    assert decode(message([{"tensor": 0}], table, b"\0\1"))[0].tolist() == [False, True]
    with pytest.raises(Refused, match="truth values"):
        decode(message([{"tensor": 0}], table, b"\0\7"))


def test_ten_thousand_references_to_one_tensor_are_refused_in_milliseconds():
    big = torch.zeros(1_000_000)
    skeleton = {"params": [[f"p{number}", 0] for number in range(10_000)]}
    data = safetensors.save({"0": big}, metadata={"consort": json.dumps(skeleton)})
    start = time.process_time()
    with pytest.raises(Refused, match="twice"):
        decode(data)
    assert time.process_time() - start < 0.3


def test_a_message_that_is_too_large_costs_no_memory():
    data = encode({"model": torch.zeros(4_000_000)})
    tracemalloc.start()
    with pytest.raises(Refused, match="more than 1000000"):
        decode(data, limits=Limits(bytes=1_000_000))
    assert tracemalloc.get_traced_memory()[1] < 100_000
    tracemalloc.stop()


def test_a_header_that_is_too_large_is_not_parsed():
    data = message("[" + "{}," * 1_000_000 + "{}]")
    tracemalloc.start()
    with pytest.raises(Refused, match="header"):
        decode(data, limits=Limits(header=1 << 20))
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


def test_tensors_have_memory_of_their_own():
    data = encode({"t": torch.arange(4.0)})
    first, second = decode(data)["t"], decode(data)["t"]
    first.fill_(9)
    assert second.tolist() == [0, 1, 2, 3]


def test_our_own_files_may_share_tensors_and_hold_large_numbers():
    one = Params({"w": torch.zeros(3)})
    data = encode({"a": one, "b": one, "n": 10**40}, once=True)
    assert decode(data, limits=OWN)["n"] == 10**40
    with pytest.raises(Refused):
        decode(data)


@pytest.mark.parametrize("text", [b"", b"{", b"\xff", b"[1" + b"0" * 5000 + b"]", b"[" * 9999])
def test_what_is_no_json_is_refused(text):
    with pytest.raises(Refused):
        read_json(text, Limits())
