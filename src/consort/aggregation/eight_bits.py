"""Quantisation of parameters to integers of eight bits, a quarter of the bytes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from consort.core.contract import Entry, Model, Size
from consort.core.known import Known, check_kind
from consort.core.limits import LARGEST
from consort.core.params import Params
from consort.errors import Refused

Short = dict[str, dict[str, Tensor]]
"""By name: integers from -127 to 127 (`counts`), and the number that 1 stands for (`unit`)."""
_LARGEST = 127


def shorten(params: Params) -> Short:
    """Rounds each tensor of `params` to multiples of 1/127 of its largest absolute value."""
    return {name: _short(tensor) for name, tensor in params.items()}


def restore(short: Short) -> Params:
    """The parameters from `short`, what `shorten` returned, exact to half a unit."""
    return Params({name: part["counts"] * part["unit"] for name, part in short.items()})


@dataclass(frozen=True)
class Shortened(Entry):
    """What `shorten` made of parameters of a client's model, in its answer."""

    model: Model
    """The parameters."""

    def check(self, value: Any, where: str, known: Known) -> None:
        """Refuses other names, shapes and types, and units that are negative or not finite."""
        kinds = self.model.part(known).kinds
        if not isinstance(value, dict) or value.keys() != kinds.keys():
            raise Refused(f"{where} does not have the names of the parameters")
        for name, (shape, _) in kinds.items():
            part, here = value[name], f"{where}, parameter {name!r},"
            if not isinstance(part, dict) or part.keys() != {"counts", "unit"}:
                raise Refused(f"{here} is not a dict of `counts` and `unit`")
            check_kind(here, part["counts"], shape, torch.int8)
            check_kind(here, part["unit"], (), torch.float32)
            if not 0 <= float(part["unit"]) <= LARGEST:
                raise Refused(f"{here} has the unit {float(part['unit'])}")

    def size(self, known: Known) -> Size:
        """A byte for every number, and a unit for every parameter."""
        part = self.model.part(known)
        numbers = sum(math.prod(shape) for shape, _ in part.kinds.values())
        names = len(part.names)
        return Size(numbers + 4 * names, 2 * names, part.text + 100 * names)


def _short(tensor: Tensor) -> dict[str, Tensor]:
    unit = torch.linalg.vector_norm(tensor, torch.inf).float() / _LARGEST
    counts = (tensor / unit).round() if unit > 0 else torch.zeros_like(tensor)
    return {"counts": counts.to(torch.int8), "unit": unit}
