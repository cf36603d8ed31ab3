"""Shuffled batches of a client's examples."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import torch
from torch import Generator

from consort.data.examples import Examples

_GATHERED = 1 << 18  # small data sets are shuffled for several epochs at once, up to this size


def shuffled_batches(
    examples: Examples, generator: Generator, size: int, epochs: int, steps: int | None
) -> Iterator[Examples]:
    """Draws shuffled batches for all epochs or steps.

    Args:
        examples: The examples to draw from.
        generator: The source of randomness.
        size: The number of examples in a batch.
        epochs: The number of passes over the examples.
        steps: The number of batches, in the place of `epochs`.

    Yields:
        One batch at a time; the last one of an epoch may be smaller.
    """
    count = len(examples)
    per_epoch = -(-count // size)
    left = steps if steps is not None else epochs * per_epoch
    at_once = max(1, _GATHERED // examples.size) if examples.size else 1
    while left > 0 and count:
        passes = min(-(-left // per_epoch), at_once)
        orders = [torch.randperm(count, generator=generator) for _ in range(passes)]
        shuffled = examples.take(torch.cat(orders))
        full, rest = divmod(count, size)
        sizes = ([size] * full + [rest] * bool(rest)) * passes
        yield from islice(shuffled.split(sizes), left)
        left -= per_epoch * passes
