"""Byzantine-robust aggregation: a few clients have little influence, whatever they send.

Yin, Chen, Ramchandran and Bartlett: Byzantine-Robust Distributed Learning, ICML 2018 (median and
trimmed mean); Blanchard, El Mhamdi, Guerraoui and Stainer: Machine Learning with Adversaries,
NeurIPS 2017 (Krum); Sun, Kairouz, Suresh and McMahan: Can You Really Backdoor Federated
Learning?, 2019 (norm clipping). Nothing here is weighted: clients state their weights themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import torch
from torch import Tensor

from consort.core.params import Params, mean
from consort.errors import NoReplies


def trimmed_mean(items: Sequence[Params], cut: int) -> Params:
    """In every coordinate, the mean without the smallest and the largest values.

    Args:
        items: The parameters that clients sent.
        cut: The number of values that are left out at either end.

    Returns:
        The trimmed mean.

    Raises:
        NoReplies: If there are fewer than `2 * cut + 1` items.
    """
    _need(items, 2 * cut + 1, f"a mean without {cut} at either end")
    last = len(items) - cut
    sums = mean(items)  # refuses models that do not match
    stacks = {name: torch.stack([item[name] for item in items]) for name in sums}
    return Params({name: stack.sort(0).values[cut:last].mean(0) for name, stack in stacks.items()})


def median(items: Sequence[Params]) -> Params:
    """In every coordinate the median of `items`, the mean of the two middle values if need be."""
    return trimmed_mean(items, max(len(items) - 1, 0) // 2)


def krum_scores(items: Sequence[Params], malicious: int) -> list[float]:
    """For each model, the sum of squared distances to its n - `malicious` - 2 nearest neighbours.

    Honest clients are near each other, so their scores are small.

    Args:
        items: The n models that clients sent.
        malicious: The number of malicious clients to tolerate.

    Returns:
        One score per model.

    Raises:
        NoReplies: If there are fewer than `2 * malicious + 3` items.
    """
    _need(items, 2 * malicious + 3, f"Krum against {malicious}")
    squares = torch.zeros(len(items), len(items), dtype=torch.float64)
    for one, other in combinations(range(len(items)), 2):
        difference = items[one] - items[other]
        squares[one, other] = squares[other, one] = difference.dot(difference)
    neighbours = len(items) - malicious - 2
    nearest: Tensor = squares.sort(1).values[:, 1 : 1 + neighbours]  # the first is oneself
    scores: list[float] = nearest.sum(1).tolist()
    return scores


def multi_krum(items: Sequence[Params], malicious: int, chosen: int | None = None) -> Params:
    """The mean of the models with the smallest scores.

    Args:
        items: The models that clients sent.
        malicious: The number of malicious clients to tolerate.
        chosen: The number of models to average; by default all but `malicious`.

    Returns:
        The mean.

    Raises:
        NoReplies: If there are fewer than `2 * malicious + 3` items.
    """
    scores = krum_scores(items, malicious)
    ranked = sorted(range(len(items)), key=lambda place: (scores[place], place))
    count = len(items) - malicious if chosen is None else chosen
    return mean([items[place] for place in sorted(ranked[:count])])


def krum(items: Sequence[Params], malicious: int) -> Params:
    """The one of `items` with the smallest score for so many `malicious`: see `krum_scores`."""
    return multi_krum(items, malicious, 1)


def clipped(update: Params, limit: float) -> Params:
    """The `update`, scaled down to the norm `limit` if it is longer."""
    length = update.norm()
    return update if length <= limit else update * (limit / length)


def _need(items: Sequence[Params], fewest: int, what: str) -> None:
    if len(items) < fewest:
        raise NoReplies(f"{what} needs {fewest} or more answers, and there were {len(items)}")
