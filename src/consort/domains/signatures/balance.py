"""Balancing genuine signatures and forgeries of every user by repetition (FedMH, Equation 1)."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from consort.training.augmentation import Repeat


def balanced(
    users: Tensor, genuine: Tensor, generator: Generator, repeated: Repeat = "smaller"
) -> Tensor:
    """Repeats examples until every user has as many genuine signatures as forgeries.

    Examples to repeat are drawn with replacement from each user's smaller class. A user with only
    one class is left unchanged.

    Args:
        users: The user of each example.
        genuine: Whether each example is genuine.
        generator: The source of randomness.
        repeated: Where repeated examples come from. `larger` and `any` repeat as many examples
            without balancing: controls that separate the effect of balance from that of number.

    Returns:
        The positions of all examples, followed by those of the repeated ones.
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
