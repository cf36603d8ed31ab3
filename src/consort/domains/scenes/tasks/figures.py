"""Joints that were found, put together to figures by their tags."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from consort.domains.scenes.tasks.heat import peaks

_REACH, _LOWEST, _MOST = 2, 0.1, 30  # of joints of one kind, as published
_APART = 1.0  # tags of two figures, as published


@dataclass
class _Figure:
    """For every joint it has: x, y and the height of the map there; and their tags."""

    joints: dict[int, tuple[float, float, float]] = field(default_factory=dict)
    tags: list[float] = field(default_factory=list)

    @property
    def tag(self) -> float:
        """The mean of its joints'."""
        return sum(self.tags) / len(self.tags)

    @property
    def height(self) -> float:
        """The sum of its joints'."""
        return sum(height for *_, height in self.joints.values())

    def completed(self, heat: Tensor, tags: Tensor) -> Tensor:
        """The x and y of all joints, also of those that were not found."""
        likely = heat - (tags - self.tag).abs().round()
        highest, width = likely.flatten(1).argmax(1), heat.shape[-1]
        places = torch.stack([highest % width, highest // width], -1) + 0.5
        for joint, (right, down, _) in self.joints.items():
            places[joint] = torch.tensor([right, down])
        return places


def found_figures(heat: Tensor, tags: Tensor) -> tuple[Tensor, Tensor]:
    """The x and y of every figure's joints in one image, and its score: its mean height.

    Joint after joint, those found join the figure with the nearest mean tag, the highest first (see
    `nearest_pairs`); who finds none less than 1 away begins a new one. A joint that a figure lacks
    counts as 0, and is put where its map is highest, less by the distance of tags in whole numbers.
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
    """Pairs of tags less than 1 apart, each in one pair at most.

    Those less than half apart come first; among these, as among the others, the first of ours, and
    for each the first of theirs: tags so close say nothing about who belongs to whom.
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
