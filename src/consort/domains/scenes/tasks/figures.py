"""Grouping detected joints into figures by their tags (associative embedding)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from consort.domains.scenes.tasks.heat import peaks

_REACH, _LOWEST, _MOST = 2, 0.1, 30  # peaks of one kind of joint, as published
_APART = 1.0  # the smallest distance of tags of two figures, as published


@dataclass
class _Figure:
    """The joints found so far, each with x, y and the height of its peak; and their tags."""

    joints: dict[int, tuple[float, float, float]] = field(default_factory=dict)
    tags: list[float] = field(default_factory=list)

    @property
    def tag(self) -> float:
        """The mean tag of its joints."""
        return sum(self.tags) / len(self.tags)

    @property
    def height(self) -> float:
        """The sum of the heights of its joints."""
        return sum(height for *_, height in self.joints.values())

    def completed(self, heat: Tensor, tags: Tensor) -> Tensor:
        """The x and y of all joints, including estimates of those that were not found."""
        likely = heat - (tags - self.tag).abs().round()
        highest, width = likely.flatten(1).argmax(1), heat.shape[-1]
        places = torch.stack([highest % width, highest // width], -1) + 0.5
        for joint, (right, down, _) in self.joints.items():
            places[joint] = torch.tensor([right, down])
        return places


def found_figures(heat: Tensor, tags: Tensor) -> tuple[Tensor, Tensor]:
    """Groups the joints in one image into figures.

    Joint by joint, peaks join the figure with the nearest mean tag, the highest peak first (see
    `nearest_pairs`); a peak without a figure at a distance below 1 starts a new one. A missing
    joint counts as 0 in the score, and is placed where its heat map minus the rounded tag distance
    is highest.

    Args:
        heat: The heat map of each joint.
        tags: The tag map of each joint.

    Returns:
        The x and y of every figure's joints, and its score: the mean height of its peaks.
    """
    figures: list[_Figure] = []
    for joint, (map_, own_tags) in enumerate(zip(heat, tags, strict=True)):
        heights, pixels = peaks(map_, _REACH, _LOWEST, _MOST)
        own = own_tags[pixels[:, 0], pixels[:, 1]].tolist()
        chosen = nearest_pairs(own, [figure.tag for figure in figures])
        places = pixels.tolist()
        for peak, (height, (down, right)) in enumerate(zip(heights.tolist(), places, strict=True)):
            if peak not in chosen:
                chosen[peak] = len(figures)
                figures.append(_Figure())
            figure = figures[chosen[peak]]
            figure.joints[joint] = right + 0.5, down + 0.5, height
            figure.tags.append(own[peak])
    best = sorted(figures, key=lambda figure: -figure.height)[:_MOST]
    places = [figure.completed(heat, tags) for figure in best]
    scores = torch.tensor([figure.height / len(heat) for figure in best])
    return torch.stack(places) if places else torch.zeros(0, len(heat), 2), scores


def nearest_pairs(ours: Sequence[float], theirs: Sequence[float]) -> dict[int, int]:
    """Pairs up tags that are less than 1 apart; each tag is in at most one pair.

    Distances are rounded: pairs less than 0.5 apart come first, and ties are resolved by the order
    of ours, then of theirs, because smaller differences carry no information.

    Args:
        ours: The tags of the peaks.
        theirs: The tags of the figures.

    Returns:
        For each of our tags in a pair the position of its partner.
    """
    distances = sorted(
        (round(abs(our - their)), one, other, abs(our - their))
        for one, our in enumerate(ours)
        for other, their in enumerate(theirs)
    )
    pairs: dict[int, int] = {}
    for _, one, other, distance in distances:
        if distance < _APART and one not in pairs and other not in pairs.values():
            pairs[one] = other
    return pairs
