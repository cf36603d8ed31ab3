"""Quantisation of parameters to integers of eight bits, a quarter of the bytes."""

from __future__ import annotations

import torch
from torch import Tensor

from consort.core.params import Params

Short = dict[str, dict[str, Tensor]]
"""By name: integers from -127 to 127 (`counts`), and the number that 1 stands for (`unit`)."""
_LARGEST = 127


def shorten(params: Params) -> Short:
    """Rounds each tensor of `params` to multiples of 1/127 of its largest absolute value."""
    return {name: _short(tensor) for name, tensor in params.items()}


def restore(short: Short) -> Params:
    """The parameters from `short`, what `shorten` returned, exact to half a unit."""
    return Params({name: part["counts"] * part["unit"] for name, part in short.items()})


def _short(tensor: Tensor) -> dict[str, Tensor]:
    unit = torch.linalg.vector_norm(tensor, torch.inf).float() / _LARGEST
    counts = (tensor / unit).round() if unit > 0 else torch.zeros_like(tensor)
    return {"counts": counts.to(torch.int8), "unit": unit}
