"""As many genuine signatures as forgeries of every user (Equation 1 of FedMH)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Generator, Tensor

Repeated = Literal["smaller", "larger", "any"]


def balanced(
    users: Tensor, genuine: Tensor, generator: Generator, repeated: Repeated = "smaller"
) -> Tensor:
    """Positions of all examples, then of repeated ones from each user's smaller class.

    Those are drawn with replacement until both classes are of one size. A user without genuine
    signatures or without forgeries keeps what there is. As many are drawn from the `larger` class
    or from `any` of the user's signatures to see what balance, and not mere number, is worth.
    """
    genuine = genuine.bool()
    extra = [torch.arange(len(users))]
    for user in users.bincount().nonzero()[:, 0]:
        classes = [((users == user) & (genuine == kind)).nonzero()[:, 0] for kind in (True, False)]
        smaller, larger = sorted(classes, key=len)
        if len(smaller):
            missing = len(larger) - len(smaller)
            pool = {"smaller": smaller, "larger": larger, "any": torch.cat(classes)}[repeated]
            extra.append(pool[torch.randint(len(pool), (missing,), generator=generator)])
    return torch.cat(extra)
