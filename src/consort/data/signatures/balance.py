"""As many genuine signatures as forgeries of every user (Equation 1 of FedMH)."""

from __future__ import annotations

import torch
from torch import Generator, Tensor


def balanced(users: Tensor, genuine: Tensor, generator: Generator) -> Tensor:
    """Positions of all examples, then of repeated ones from each user's smaller class.

    Those are drawn with replacement until both classes are of one size. A user without genuine
    signatures or without forgeries keeps what there is.
    """
    genuine = genuine.bool()
    extra = [torch.arange(len(users))]
    for user in users.bincount().nonzero()[:, 0]:
        classes = [((users == user) & (genuine == kind)).nonzero()[:, 0] for kind in (True, False)]
        smaller, larger = sorted(classes, key=len)
        if len(smaller):
            missing = len(larger) - len(smaller)
            draws = torch.randint(len(smaller), (missing,), generator=generator)
            extra.append(smaller[draws])
    return torch.cat(extra)
