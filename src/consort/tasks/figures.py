"""Joints that were found, put together to figures by their tags."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from consort.tasks.heat import peaks

_REACH, _LOWEST, _MOST = 2, 0.1, 30  # of joints of one kind, as published
_APART = 1.0  # tags of two figures, as published


@dataclass
class _Figure:
    """For every joint it has: x, y and the height of the map there; and their tags."""

    joints: dict[int, tuple[float, float, float]] = field(default_factory=dict)
    tags: list[float] = field(default_factory=list)

    @property
    def tag(self) -> float:
        return sum(self.tags) / len(self.tags)


def found_figures(heat: Tensor, tags: Tensor) -> tuple[Tensor, Tensor]:
    """The x and y of every figure's joints in one image, and its score: its mean height.

    Joint after joint, those found join the figure with the nearest mean tag; who finds none less
    than 1 away begins a new one. A joint that a figure lacks is no number, and has the height 0.
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
    return _as_tensors(figures, len(heat))


def nearest_pairs(ours: Sequence[float], theirs: Sequence[float]) -> dict[int, int]:
    """Pairs of tags less than 1 apart, the nearest first, each in one pair at most."""
    distances = sorted(
        (abs(our - their), one, other)
        for one, our in enumerate(ours)
        for other, their in enumerate(theirs)
    )
    pairs: dict[int, int] = {}
    for distance, one, other in distances:
        if distance < _APART and one not in pairs and other not in pairs.values():
            pairs[one] = other
    return pairs


def _as_tensors(figures: Sequence[_Figure], joints: int) -> tuple[Tensor, Tensor]:
    values = torch.zeros(len(figures), joints, 3)
    values[..., :2] = torch.nan
    for row, figure in enumerate(figures):
        for joint, numbers in figure.joints.items():
            values[row, joint] = torch.tensor(numbers)
    return values[..., :2], values[..., 2].mean(1)
