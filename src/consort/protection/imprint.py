"""Looks at a model before training it: some are built to carry examples away.

Fowl, Geiping, Czaja, Goldblum and Goldstein: Robbing the Fed, ICLR 2022: a linear layer whose rows
all measure the same thing, with biases that rise in steps, sorts examples into bins, and
differences of its gradients are the examples.
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
"""Smaller layers are not looked at: a few rows may be alike by chance."""
ALIKE = 0.999
"""Rows are alike if the cosine of the angle between them is at least this, or its opposite."""
SHARE = 0.5
"""The share of rows alike from which a layer is refused."""


def alike_rows(weight: Tensor) -> float:
    """The largest share of a matrix's rows that one of them is a multiple of, up to sign.

    Rows of zeros measure nothing and do not count. Only as many candidates are tried as it takes
    to hit a group that holds more than a few of the rows.
    """
    lengths = weight.norm(dim=1, keepdim=True)
    rows = (weight / lengths)[lengths[:, 0] > 0]
    if len(rows) < FEWEST:
        return 0.0
    candidates = rows[:: max(len(rows) // 64, 1)]
    cosines = (candidates @ rows.T).abs()
    return float((cosines >= ALIKE).float().mean(1).max())


def refuse_imprints(tensors: list[NamedTensor]) -> None:
    """Refuses a model in which a linear layer's rows are mostly the same but for their scale."""
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
    """Clients refuse models that are built to carry examples away."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}
    table: ClassVar[str] = "refuse_imprints"

    def client(self, handler: Handler, setting: Setting) -> Handler:  # noqa: ARG002
        """Looks at every payload before it is used, and at the same objects once."""
        seen: tuple[object, ...] = ()

        def guarded(request: Request) -> Payload:
            nonlocal seen
            values = tuple(request.call.payload.values())
            if list(map(id, values)) != list(map(id, seen)):
                refuse_imprints(tensors_in(values))
                seen = values
            return handler(request)

        return guarded
