"""Refuses models that are built to copy training examples into their updates (imprints).

Fowl, Geiping, Czaja, Goldblum and Goldstein: Robbing the Fed, ICLR 2022: a linear layer whose rows
are all multiples of one row, with increasing biases, sorts examples into bins, and differences of
its gradients are the examples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from consort.core.messages import Payload
from consort.core.wire import NamedTensor, tensors_in
from consort.errors import Refused
from consort.federation.protection import Handler, Protection, Request, Setting

FEWEST = 8
"""Layers with fewer rows or columns are not checked: a few rows may be alike by chance."""
ALIKE = 0.999
"""Rows are alike if the absolute cosine of the angle between them is at least this."""
SHARE = 0.5
"""A layer is refused if at least this share of its rows is alike."""


def alike_rows(weight: Tensor) -> float:
    """The largest share of a matrix's rows that are multiples of one row.

    Rows of zeros do not count. Only about 64 rows are compared with all others, which is enough to
    find a large group.

    Args:
        weight: The matrix.

    Returns:
        The share; 0 if there are fewer than `FEWEST` rows.
    """
    lengths = weight.norm(dim=1, keepdim=True)
    rows = (weight / lengths)[lengths[:, 0] > 0]
    if len(rows) < FEWEST:
        return 0.0
    candidates = rows[:: max(len(rows) // 64, 1)]
    cosines = (candidates @ rows.T).abs()
    return float((cosines >= ALIKE).float().mean(1).max())


def refuse_imprints(tensors: list[NamedTensor]) -> None:
    """Refuses a model with a linear layer whose rows are mostly multiples of one row.

    Args:
        tensors: The parameters of the model, by name.

    Raises:
        Refused: If there is such a layer.
    """
    for name, tensor in tensors:
        if tensor.ndim != 2 or min(tensor.shape) < FEWEST or not tensor.is_floating_point():
            continue
        share = alike_rows(tensor)
        if share >= SHARE:
            raise Refused(
                f"{share:.0%} of the rows of {name or 'a matrix'} are one row at different scales, "
                "as in a model built to copy training examples: it is not trained"
            )


@dataclass(frozen=True)
class RefuseImprints(Protection):
    """Clients refuse to train models that are built to copy training examples."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}
    table: ClassVar[str] = "refuse_imprints"

    def client(self, handler: Handler, setting: Setting) -> Handler:  # noqa: ARG002
        """Checks every payload before it is used; the same objects only once in a row."""
        seen: tuple[object, ...] = ()

        def guarded(request: Request) -> Payload:
            nonlocal seen
            values = tuple(request.call.payload.values())
            if list(map(id, values)) != list(map(id, seen)):
                refuse_imprints(tensors_in(values))
                seen = values
            return handler(request)

        return guarded
