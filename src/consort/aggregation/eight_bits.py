"""Parameters as integers of eight bits: a quarter of the bytes."""

from __future__ import annotations

import torch
from torch import Tensor

from consort.core.params import Params

Short = dict[str, dict[str, Tensor]]
"""By name: integers from -127 to 127, and their unit."""
_LARGEST = 127


def shorten(params: Params) -> Short:
    """Every tensor in units of 1/127 of its largest absolute value, rounded to the nearest."""
    return {name: _short(tensor) for name, tensor in params.items()}


def restore(short: Short) -> Params:
    """The inverse of `shorten`, up to half a unit."""
    return Params({name: part["counts"] * part["unit"] for name, part in short.items()})


def _short(tensor: Tensor) -> dict[str, Tensor]:
    unit = torch.linalg.vector_norm(tensor, torch.inf).float() / _LARGEST
    counts = (tensor / unit).round() if unit > 0 else torch.zeros_like(tensor)
    return {"counts": counts.to(torch.int8), "unit": unit}
