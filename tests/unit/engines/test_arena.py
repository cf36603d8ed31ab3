from __future__ import annotations

import json
import multiprocessing
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.helpers import assert_same
from torch import Tensor

from consort.core.params import Params
from consort.engines.arena import Arena
from consort.errors import Failure, Refused

DTYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64,
    torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
]  # fmt: skip
SHAPES = [(), (1,), (5,), (0,), (0, 3), (2, 3), (2, 1, 4)]


def tensor_of(dtype: torch.dtype, shape: tuple[int, ...], seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-3, 4, shape, generator=generator).to(dtype)


def journey(arena: Arena, value: object) -> object:
    """There and back, with the frame as JSON in between as it goes through a pipe."""
    return arena.read(json.loads(json.dumps(arena.write(value))))


@pytest.mark.parametrize("dtype", DTYPES)
def test_tensors_of_every_kind_and_size_come_back(dtype):
    value = [tensor_of(dtype, shape) for shape in SHAPES]
    assert_same(journey(Arena(1 << 16), value), value)


tensors = st.builds(tensor_of, st.sampled_from(DTYPES), st.sampled_from(SHAPES), st.integers(0, 99))


@given(st.lists(tensors, max_size=8), st.dictionaries(st.text(max_size=3), tensors, max_size=3))
def test_tensors_of_mixed_kinds_do_not_touch_each_other(several, named):
    value = {"several": tuple(several), "params": Params(named), 3: [None, True, 0.5, "text"]}
    assert_same(journey(Arena(1 << 16), value), value)


def test_numbers_that_are_not_finite_come_back():
    special = [float("nan"), float("inf"), -float("inf"), -0.0]
    value = {"plain": special, "tensor": torch.tensor(special)}
    assert_same(journey(Arena(4096), value), value)


def test_a_value_without_tensors_needs_no_memory():
    frame = Arena(4096).write({"a": [1, "x"]})
    assert frame["places"] == []


def test_tensors_that_are_not_contiguous_come_back_plain():
    images = torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last)
    found = journey(Arena(1 << 16), [images, images.transpose(0, 1), images[:, :, ::2]])
    assert all(tensor.is_contiguous() for tensor in found)
    assert_same(found, [images, images.transpose(0, 1), images[:, :, ::2]])


def test_parameters_arrive_without_gradients():
    (found,) = journey(Arena(4096), [torch.nn.Parameter(torch.ones(2))])
    assert type(found) is Tensor
    assert not found.requires_grad


def test_what_is_read_is_the_shared_memory_itself():
    arena = Arena(4096)
    frame = arena.write([torch.zeros(3)])
    (first,), (second,) = arena.read(frame), arena.read(frame)
    assert first.data_ptr() == second.data_ptr()
    first.fill_(7)
    assert second.tolist() == [7, 7, 7]
    arena.write([torch.ones(3)])
    assert first.tolist() == [1, 1, 1]


def test_what_is_copied_outlives_the_next_write():
    arena = Arena(4096)
    (copied,) = arena.read_copy(arena.write([torch.zeros(3)]))
    arena.write([torch.ones(3)])
    assert copied.tolist() == [0, 0, 0]


def test_writing_leaves_the_source_alone_and_apart():
    arena, source = Arena(4096), torch.arange(3.0)
    (found,) = arena.read(arena.write([source]))
    found.zero_()
    assert source.tolist() == [0, 1, 2]


def test_every_tensor_begins_at_a_cache_line():
    value = [torch.zeros(n, dtype=torch.uint8) for n in (1, 64, 65, 0, 3)]
    offsets = [offset for offset, _, _ in Arena(4096).write(value)["places"]]
    assert offsets == [0, 64, 128, 256, 256]


def test_a_message_may_fill_the_memory_and_not_be_larger():
    arena = Arena(4096)
    full = [torch.ones(1000), torch.zeros(0), torch.ones(16)]
    assert_same(arena.read(arena.write(full)), full)
    for large in ([torch.ones(1025)], [torch.ones(1000), torch.ones(17)]):
        with pytest.raises(Failure, match="cannot be sent"):
            arena.write(large)
    assert_same(arena.read(arena.write(full)), full)


def test_untouched_memory_costs_nothing():
    assert_same(journey(Arena(), [torch.ones(5)]), [torch.ones(5)])


def test_objects_that_are_not_plain_are_not_made_from_shared_memory():
    @dataclass
    class Record:
        x: int

    arena = Arena(4096)
    with pytest.raises(Refused, match="neither a tensor nor a plain value"):
        arena.read(arena.write(Record(1)))
    with pytest.raises(Refused, match="cannot be sent"):
        arena.write(object())


def test_another_process_sees_what_is_written_and_is_seen():
    arena = Arena(1 << 16)
    frame = arena.write([torch.arange(5.0), torch.arange(3)])

    def add_one() -> None:
        for tensor in arena.read(frame):
            tensor += 1

    process = multiprocessing.get_context("fork").Process(target=add_one)
    process.start()
    process.join(10)
    assert process.exitcode == 0
    assert_same(arena.read(frame), [torch.arange(5.0) + 1, torch.arange(3) + 1])
