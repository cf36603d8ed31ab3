"""Memory that processes share: tensors are written on one side and seen on the other."""

from __future__ import annotations

import math
import mmap
from typing import Any

import torch
from torch import Tensor

from consort.core.packing import pack, unpack
from consort.errors import Failure

_NORESERVE = 0x4000  # Linux: pages cost nothing until they are written
_ALIGNMENT = 64
_SIZE = 16 << 30

Frame = dict[str, Any]
"""What is sent beside the shared memory: the plain values, and where the tensors lie."""


class Arena:
    """A large stretch of address space, backed by memory only as far as it is used.

    Anonymous, so it is gone with the last process that has it, however that ends.
    """

    def __init__(self, size: int = _SIZE) -> None:
        flags = mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | _NORESERVE
        self._bytes = torch.frombuffer(mmap.mmap(-1, size, flags=flags), dtype=torch.uint8)

    def write(self, value: Any) -> Frame:
        """Lays the tensors of a value down, over whatever was there before."""
        tensors: list[Tensor] = []
        plain = pack(value, tensors)
        places, offset = [], 0
        for tensor in tensors:
            self._view(offset, tensor.dtype, tensor.shape).copy_(tensor)
            places.append([offset, str(tensor.dtype).removeprefix("torch."), list(tensor.shape)])
            offset += -(-tensor.numel() * tensor.element_size() // _ALIGNMENT) * _ALIGNMENT
        return {"plain": plain, "places": places}

    def read(self, frame: Frame) -> Any:
        """The value of a frame; its tensors are views that last until the next `write`."""
        tensors = [
            self._view(offset, getattr(torch, dtype), torch.Size(shape))
            for offset, dtype, shape in frame["places"]
        ]
        return unpack(frame["plain"], tensors)

    def read_copy(self, frame: Frame) -> Any:
        """The value of a frame, with tensors of its own."""
        tensors = [
            self._view(offset, getattr(torch, dtype), torch.Size(shape)).clone()
            for offset, dtype, shape in frame["places"]
        ]
        return unpack(frame["plain"], tensors)

    def _view(self, offset: int, dtype: torch.dtype, shape: torch.Size) -> Tensor:
        length = math.prod(shape) * dtype.itemsize
        if offset + length > len(self._bytes):
            raise Failure(f"a message of more than {len(self._bytes) >> 30} GiB cannot be sent")
        return self._bytes[offset : offset + length].view(dtype).view(shape)
