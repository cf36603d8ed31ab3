from __future__ import annotations

import dataclasses
import json
import math
import struct
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import torch as safetensors
from torch import Tensor, nn

from consort.core.algorithm import Clients, on_client
from consort.core.limits import OWN
from consort.core.messages import Call, Each, Replies
from consort.core.packing import pack, unpack
from consort.core.params import Params
from consort.core.wire import check, decode, encode, tensors_in
from consort.engines.scripted import Scripted
from consort.errors import NoReplies, Refused, UsageError

DTYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16,
    torch.int64, torch.int32, torch.int8, torch.uint8, torch.bool,
]  # fmt: skip


@dataclass(frozen=True)
class Server:
    model: Params
    rounds: dict[int, float]


@dataclass
class Note:
    text: str
    value: Any = None


@on_client
def answer() -> dict[str, Any]:
    """Its name and mark are all that a scripted engine needs."""
    raise NotImplementedError


RECORDS: dict[str, type] = {"Server": Server, "Note": Note}


def tensor_of(dtype: torch.dtype, shape: tuple[int, ...], seed: int) -> Tensor:
    return torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


texts = st.text('aZ09._ "\\\0\n\u00e9\u2028\U0001f3bb', max_size=5)
tensors = st.builds(
    tensor_of,
    st.sampled_from(DTYPES),
    st.sampled_from([(), (1,), (3,), (2, 3), (0,), (0, 4), (2, 1, 2)]),
    st.integers(0, 100),
)
params = st.dictionaries(texts, tensors, max_size=3).map(Params)
whole = st.integers(-(10**16), 10**17)
leaves = (
    st.none() | st.booleans() | whole | st.floats() | texts | tensors | params
)  # fmt: skip
payloads = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(texts | whole, inner, max_size=3)
        | st.builds(Note, texts, inner)
    ),
    max_leaves=8,
)


def same(a: Any, b: Any) -> bool:
    """Whether two values agree in every type and every bit."""
    if type(a) is not type(b):
        return False
    if isinstance(a, Tensor):
        return (a.dtype, a.shape) == (b.dtype, b.shape) and bits(a) == bits(b)
    if isinstance(a, float):
        return (math.isnan(a) and math.isnan(b)) or struct.pack("d", a) == struct.pack("d", b)
    if isinstance(a, dict | Params):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if dataclasses.is_dataclass(a):
        return same(vars(a), vars(b))
    return bool(a == b)


def bits(tensor: Tensor) -> list[int]:
    plain: list[int] = tensor.reshape(-1).view(torch.uint8).tolist()
    return plain


def message(skeleton: Any, tensors: dict[str, Tensor] | None = None) -> bytes:
    """Bytes in the right frame around any skeleton, as a stranger could make them."""
    return safetensors.save(tensors or {}, metadata={"consort": json.dumps(skeleton)})


# There and back


@settings(max_examples=120, deadline=None)
@given(payloads)
def test_any_payload_comes_back_as_it_was(value):
    assert same(decode(encode(value), RECORDS), value)


@settings(max_examples=40, deadline=None)
@given(payloads)
def test_writing_does_not_depend_on_the_journey(value):
    data = encode(value)
    assert encode(decode(data, RECORDS)) == data


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (5,), (0,), (3, 0, 2), (2, 3, 4)])
def test_tensors_of_every_kind(dtype, shape):
    tensor = tensor_of(dtype, shape, 0)
    assert same(decode(encode({"t": tensor})), {"t": tensor})


def test_numbers_that_are_not_finite_survive_in_tensors_and_alone():
    special = [math.nan, math.inf, -math.inf, -0.0, 5e-324, 1.7976931348623157e308]
    value = {"plain": special, "tensor": torch.tensor(special, dtype=torch.float64)}
    assert same(decode(encode(value)), value)


def test_keys_keep_their_type_and_order():
    value = {"b": 1, 2: "two", "2": "text", "a": 3, -1: None}
    assert same(decode(encode(value)), value)


def test_keys_that_look_like_our_own_marks_are_plain_keys():
    value = {"tensor": 0, "params": [], "map": {"tuple": 1}, "record": "Server", "fields": {}}
    assert same(decode(encode(value)), value)


def test_what_is_read_can_be_written_to():
    result = decode(encode({"t": torch.zeros(3)}))["t"]
    assert result.add_(1).tolist() == [1, 1, 1]


def test_tensors_that_need_gradients_arrive_without():
    parameter = nn.Parameter(torch.ones(2))
    result = decode(encode([parameter, parameter * 2]))
    assert [tensor.requires_grad for tensor in result] == [False, False]
    assert [tensor.tolist() for tensor in result] == [[1, 1], [2, 2]]


@pytest.mark.parametrize("share", [
    lambda t: [t, t],
    lambda t: [t, t[:2]],
    lambda t: [t, t.view(3, 2)],
    lambda t: [t[:3], t[3:]],
    lambda t: [t.view(2, 3), t.view(2, 3).T],
    lambda t: [t[::2], t[1::2]],
    lambda t: [t[:1].expand(4), t[:0], t[:0]],
])  # fmt: skip
def test_tensors_that_share_memory_arrive_apart(share):
    value = share(torch.arange(6.0))
    result = decode(encode(value))
    assert same(result, [tensor.contiguous() for tensor in value])
    result[0].fill_(9)
    assert same(result[1:], [tensor.contiguous() for tensor in value[1:]])


def test_a_tensor_of_several_params_is_written_once_and_read_as_one():
    big = torch.arange(1000.0)
    one, other = Params({"w": big, "b": torch.ones(2)}), Params({"v": big})
    value = {"a": one, "b": [one, {"c": other}]}
    data = encode(value, once=True)
    assert len(data) < 2 * big.nbytes
    result = decode(data, limits=OWN)
    assert same(result, value)
    assert result["a"]["w"] is result["b"][1]["c"]["v"]
    assert encode(result, once=True) == data
    apart = {"a": one, "b": [Params({"w": big.clone(), "b": torch.ones(2)}), {"c": other}]}
    assert len(encode(apart, once=True)) > 2 * big.nbytes
    assert same(decode(encode(apart, once=True), limits=OWN), value)
    assert encode(apart) == encode(value)


def test_a_tensor_of_params_that_also_stands_alone_arrives_apart():
    tensor = torch.zeros(3)
    result = decode(encode([Params({"w": tensor}), tensor, Params({"v": tensor})]))
    result[1].fill_(9)
    assert same(result, [Params({"w": tensor}), torch.full((3,), 9.0), Params({"v": tensor})])


def test_what_was_written_with_every_tensor_in_every_place_is_still_read():
    tensors = {"0": torch.ones(2), "1": torch.ones(2)}
    skeleton = {"map": [["a", {"params": [["w", 0]]}], ["b", {"params": [["w", 1]]}]]}
    expected = {key: Params({"w": torch.ones(2)}) for key in "ab"}
    assert same(decode(message(skeleton, tensors)), expected)


def test_images_stored_with_channels_last_arrive_plain():
    images = torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last)
    (result,) = decode(encode([images]))
    assert torch.equal(result, images)
    assert result.is_contiguous()


def test_encoding_leaves_the_payload_alone():
    value = {"t": torch.arange(3.0), "p": Params({"w": torch.ones(2)})}
    encode(value)
    assert same(value, {"t": torch.arange(3.0), "p": Params({"w": torch.ones(2)})})


def test_pack_lists_each_tensor_once_in_order():
    found: list[Tensor] = []
    a, b = torch.zeros(1), torch.ones(1)
    skeleton = pack({"x": a, "y": [Params({"w": b}), 3]}, found)
    assert [tensor.item() for tensor in found] == [0, 1]
    assert skeleton == {"map": [["x", {"tensor": 0}], ["y", [{"params": [["w", 1]]}, 3]]]}
    assert same(unpack(skeleton, found), {"x": a, "y": [Params({"w": b}), 3]})


# What is not let in or out


@pytest.mark.parametrize("thing", [
    object(), {1, 2}, b"bytes", 1j, np.ones(2), np.int64(1), len, Server, nn.Linear(1, 1), Path(),
    torch.Generator(),
])  # fmt: skip
def test_unsupported_objects_are_refused_by_type(thing):
    with pytest.raises(Refused, match=f"a {type(thing).__name__} cannot be sent"):
        encode({"nested": [thing]})


@pytest.mark.parametrize("key", [1.5, None, ("a",), b"a"])
def test_unsupported_keys_are_refused_by_type(key):
    with pytest.raises(Refused, match=f"key of type {type(key).__name__}"):
        encode({key: 1})


def test_only_allowed_records_are_made():
    data = encode({"state": Server(Params({"w": torch.ones(2)}), {1: 0.5})})
    with pytest.raises(Refused, match="neither a tensor nor a plain value"):
        decode(data)
    with pytest.raises(Refused):
        decode(data, {"Note": Note})
    assert same(
        decode(data, {"Server": Server}), {"state": Server(Params({"w": torch.ones(2)}), {1: 0.5})}
    )


def test_a_record_whose_fields_have_changed_is_refused():
    @dataclass
    class Note:  # another version of the one above
        words: str

    with pytest.raises(Refused, match="damaged"):
        decode(encode(RECORDS["Note"]("hello")), {"Note": Note})


@pytest.mark.parametrize("skeleton", [
    {},
    {"unknown": 1},
    {"tensor": 0},
    {"tensor": "0"},
    {"tensor": 1.0},
    {"params": {"w": 0}},
    {"params": [["w", 0]]},
    {"params": [["w"]]},
    {"params": ["w"]},
    {"map": [[["list"], 1]]},
    {"map": [["a", 1, 2]]},
    {"map": {"a": 1}},
    {"tuple": 3},
    {"record": "Server", "fields": {"map": []}},
    {"record": "Server", "fields": {"map": [["model", 1], ["rounds", 2], ["extra", 3]]}},
    {"record": "Server", "fields": [1, 2]},
    {"record": "os.system", "fields": {"map": [["command", "true"]]}},
    {"record": ["Server"], "fields": {"map": []}},
])  # fmt: skip
def test_skeletons_that_are_not_ours_are_refused(skeleton):
    with pytest.raises(Refused):
        decode(message([skeleton]), RECORDS)


@pytest.mark.parametrize("data", [
    b"",
    b"short",
    b"\x00" * 8,
    b"\xff" * 64,
    b"\x02\x00\x00\x00\x00\x00\x00\x00{}",
    b"\x04\x00\x00\x00\x00\x00\x00\x00null",
    b"\x04\x00\x00\x00\x00\x00\x00\x00\xff\xfe\xfd\xfc",
    struct.pack("<Q", 2**63) + b"{}",
    safetensors.save({"0": torch.ones(1)}),
    safetensors.save({"0": torch.ones(1)}, metadata={"consort": "{"}),
    safetensors.save({"weight": torch.ones(1)}, metadata={"consort": "[]"}),
])  # fmt: skip
def test_bytes_that_are_not_a_message_are_refused(data):
    with pytest.raises(Refused, match="the message is damaged"):
        decode(data)


EXAMPLE = encode({"model": Params({"w": torch.arange(6.0)}), "n": (3, None), "t": torch.ones(2)})


def test_every_truncation_is_refused():
    for length in range(len(EXAMPLE)):
        with pytest.raises(Refused):
            decode(EXAMPLE[:length])


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(EXAMPLE) - 1), st.integers(0, 255)), min_size=1))
def test_garbled_bytes_are_read_as_something_or_refused_but_never_crash(changes):
    garbled = bytearray(EXAMPLE)
    for position, value in changes:
        garbled[position] = value
    with suppress(Refused):
        assert encode(decode(bytes(garbled), RECORDS))


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200))
def test_random_bytes_are_refused(data):
    with pytest.raises(Refused):
        decode(data)


# The check on arrival

SHAPES = {"encoder.w": (2, 3), "heads.t.b": (2,)}


def good_payload() -> dict[str, Any]:
    return {
        "model": Params({"encoder.w": torch.zeros(2, 3), "heads.t.b": torch.zeros(2)}),
        "losses": [torch.tensor(0.5), {"deep": (torch.zeros(7),)}],
        "labels": torch.tensor([1, 2]),
        "examples": 3,
    }


def test_a_good_payload_passes():
    check(tensors_in(good_payload()), SHAPES)
    check(tensors_in({}), SHAPES)
    check(tensors_in({"part": Params({"heads.t.b": torch.zeros(2)})}), SHAPES)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_numbers_that_are_not_finite_are_refused(bad, dtype):
    spoilt = torch.tensor([0.0, bad], dtype=dtype)
    with pytest.raises(Refused, match=r"heads\.t\.b holds NaN or infinite values"):
        check(tensors_in({"model": Params({"heads.t.b": spoilt})}), SHAPES)
    with pytest.raises(Refused, match="a tensor holds NaN or infinite values"):
        check(tensors_in({"list": [{"deep": (1, spoilt)}]}), SHAPES)


@pytest.mark.parametrize(("name", "tensor", "reason"), [
    ("encoder.v", torch.zeros(2, 3), r"its model has no parameter 'encoder\.v'"),
    ("encoder", torch.zeros(2, 3), "its model has no parameter 'encoder'"),
    ("encoder.w", torch.zeros(3, 2), r"'encoder\.w' has shape \(3, 2\), expected \(2, 3\)"),
    ("encoder.w", torch.zeros(6), r"has shape \(6,\), expected \(2, 3\)"),
    ("encoder.w", torch.zeros(1, 2, 3), r"has shape \(1, 2, 3\)"),
    ("encoder.w", torch.zeros(2, 3, dtype=torch.int64), "has type torch.int64"),
    ("encoder.w", torch.zeros(2, 3, dtype=torch.bool), "has type torch.bool"),
    ("encoder.w", torch.zeros(2, 3, dtype=torch.complex64), "has type torch.complex64"),
])  # fmt: skip
def test_parameters_that_are_not_the_models_are_refused(name, tensor, reason):
    with pytest.raises(Refused, match=reason):
        check(tensors_in({"parts": [Params({name: tensor})]}), SHAPES)


def test_tensors_are_found_wherever_they_are():
    found = tensors_in(good_payload())
    assert [name for name, _ in found] == ["encoder.w", "heads.t.b", "", "", ""]
    assert [tensor.numel() for _, tensor in found] == [6, 2, 1, 7, 2]


# Answers


def replies_of(**weights: float) -> Replies:
    return Replies(
        {
            client: {"model": Params({"w": torch.tensor([float(i)])}), "examples": weight}
            for i, (client, weight) in enumerate(weights.items())
        }
    )


def test_answers_are_in_client_order_however_they_arrived():
    contents = {name: {"x": i} for i, name in enumerate(["c", "a", "b"])}
    replies = Replies(contents)
    assert list(replies) == ["a", "b", "c"]
    assert len(replies) == 3
    assert replies["a"] == {"x": 1}
    assert list(replies.each("x").items()) == [("a", 1), ("b", 2), ("c", 0)]
    assert isinstance(replies.each("x"), Each)


@settings(max_examples=20, deadline=None)
@given(order=st.permutations([f"c{i}" for i in range(6)]))
def test_the_bits_of_a_mean_do_not_depend_on_the_order_of_arrival(order):
    models = {
        f"c{i}": torch.randn(50, generator=torch.Generator().manual_seed(i)) for i in range(6)
    }
    contents = {c: {"model": Params({"w": models[c]}), "examples": int(c[1]) + 1} for c in order}
    straight = Replies({c: contents[c] for c in sorted(contents)}).mean("model", "examples")
    assert Replies(contents).mean("model", "examples").equals(straight)


def test_means_weighted_by_an_entry_by_client_or_not_at_all():
    replies = replies_of(a=1, b=1, c=6)
    assert replies.mean("model")["w"].item() == pytest.approx((0 + 1 + 2) / 3)
    assert replies.mean("model", weight="examples")["w"].item() == (1 + 12) / 8
    by_client = {"c": 1.0, "b": 3.0, "a": 0.0, "someone else": 100.0}
    assert replies.mean("model", weight=by_client)["w"].item() == (3 + 2) / 4


def test_the_mean_of_no_answers_names_what_is_missing():
    with pytest.raises(NoReplies, match="no mean of 'model'"):
        Replies({}).mean("model", weight="examples")


def test_answers_without_any_weight_are_as_good_as_none():
    with pytest.raises(NoReplies, match="all weights are 0"):
        replies_of(a=0, b=0).mean("model", weight="examples")


def test_models_of_different_clients_must_fit():
    contents = {c: {"model": Params({f"{c}.w": torch.ones(1)})} for c in "ab"}
    with pytest.raises(UsageError, match="only one of them has"):
        Replies(contents).mean("model")


def test_changing_the_source_does_not_change_the_answers():
    contents = {"a": {"x": 1}}
    replies = Replies(contents)
    contents["b"] = {"x": 2}
    assert list(replies) == ["a"]


# Values that differ per client


def test_each_client_is_sent_its_own_value_and_the_common_ones():
    engine = Scripted(lambda call: {"double": call.payload["own"] * 2})
    common = Params({"w": torch.ones(1)})
    cohort = Clients(("a", "b"), 1, 1, 0, engine, population=3)
    replies = cohort.ask(answer, own=Each(a=1, b=10, c=100), model=common)
    assert replies.each("double") == {"a": 2, "b": 20}
    assert [call.payload["own"] for call in engine.calls] == [1, 10]
    assert all(call.payload["model"] is common for call in engine.calls)


def test_the_answers_of_some_can_be_sent_back_to_each():
    engine = Scripted(lambda call: {"x": f"{call.client}{call.payload.get('x', '')}"})
    cohort = Clients(("a", "b", "c"), 1, 1, 0, engine, population=3)
    first = cohort.among(["c", "a"]).ask(answer)
    second = cohort.among(first).ask(answer, x=first.each("x"))
    assert dict(second) == {"a": {"x": "aa"}, "c": {"x": "cc"}}


def test_the_method_decides_what_is_an_evaluation():
    """A server cannot pass off training as an evaluation, which protections would not touch."""
    trained = Call.from_header(Call("a", "train", 1, 0, 0, {}).header, {})
    tested = Call.from_header(Call("a", "test", 1, 0, 0, {}).header, {})
    assert (trained.evaluation, tested.evaluation) == (False, True)


@pytest.mark.parametrize(("name", "evaluation"), [("train", True), ("test", False)])
def test_evaluate_asks_only_for_test_and_round_for_all_else(name, evaluation):
    def method(self, client): ...

    method.__name__ = name
    clients = Clients(("a",), 1, 1, 0, Scripted(lambda _: {}), population=1, evaluation=evaluation)
    with pytest.raises(UsageError, match=f"asked for `{name}`"):
        clients.ask(on_client(method))


# The header of a call

HEADER = ["bank-1", "train", 3, 2, 0]


def test_the_header_of_a_call_comes_back():
    call = Call("bank-1", "secure.keys", 3, 2, 1, {"a": 1})
    assert Call.from_header(call.header, call.payload) == call


@pytest.mark.parametrize(("place", "value"), [
    *[(place, name)
      for place in (0, 1)
      for name in (None, 3, "", ".", "..", "../x", "a/b", "a b", "a\n", "\ud800x", "x" * 201)],
    *[(1, name) for name in ("a.b.c", "a..b", ".a", "tr\u00e4in", "a-b", "3a")],
    *[(place, number)
      for place in (2, 3, 4)
      for number in (None, "1", "/../../x", 1.0, True, -1, 10**10, math.nan, [1])],
    (2, 0),
])  # fmt: skip
def test_a_header_with_an_impossible_entry_is_refused(place, value):
    Call.from_header(HEADER, {})
    header = list(HEADER)
    header[place] = value
    with pytest.raises(Refused, match="header of a call"):
        Call.from_header(header, {})


@pytest.mark.parametrize("header", [None, 3, "bank", [], HEADER[:4], [*HEADER, 1], {"a": 1}])
def test_a_header_of_another_form_is_refused(header):
    with pytest.raises(Refused, match="five entries"):
        Call.from_header(header, {})
