"""How answers of dense tasks look: what a model puts out, and the truth, as colours of pixels."""

from __future__ import annotations

import colorsys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import Tensor
from torch.nn import functional as F

from consort.tasks import Depth, Edges, Normals, Saliency, Segmentation
from consort.tasks.dense import IGNORED
from consort.tasks.geometry import known_depths, known_normals

UNKNOWN = torch.tensor([0.80, 0.72, 0.88])
"""The colour of pixels that nobody knows the answer for."""

_GOLDEN = 0.618034
"""Of a turn: hues this far apart stay apart, however many there are."""
_TONES = ((0.60, 0.95), (0.80, 0.70), (0.35, 0.85), (0.90, 0.95), (0.55, 0.60))
"""Saturation and brightness."""
_RAMP = torch.tensor([[253, 231, 55], [53, 183, 121], [49, 104, 142], [68, 1, 84]]) / 255
"""From near to far."""


@dataclass(frozen=True)
class Look:
    """What makes pictures of one kind of task; the first dimension is always that of images."""

    answers: Callable[[Tensor], Tensor]
    """Turns outputs of a model into what targets are."""
    known: Callable[[Tensor], Tensor]
    """Which pixels of targets have an answer."""
    paint: Callable[[Tensor, Tensor], Tensor]
    """Colours from 0 to 1, channels first, of answers; the truth tells which range they have."""

    def truth(self, target: Tensor) -> Tensor:
        """The picture of the truth, with a colour of its own where it is not known."""
        pixels = self.paint(target, target)
        return torch.where(self.known(target)[:, None], pixels, UNKNOWN[:, None, None])

    def answer(self, output: Tensor, target: Tensor) -> Tensor:
        """The picture of what a model put out."""
        return self.paint(self.answers(output), target)


def class_colour(number: int) -> tuple[float, float, float]:
    """The colour of a class, the same in all pictures; class 0 is dark."""
    if number == 0:
        return 0.16, 0.18, 0.23
    return colorsys.hsv_to_rgb(number * _GOLDEN % 1, *_TONES[number % len(_TONES)])


_CLASSES = torch.tensor([class_colour(number) for number in range(IGNORED + 1)])


def _labelled(target: Tensor) -> Tensor:
    return target != IGNORED


def _classes(values: Tensor, _: Tensor) -> Tensor:
    return _CLASSES[values.long()].movedim(-1, 1)


def _greys(values: Tensor, _: Tensor) -> Tensor:
    return values.float().clamp(0, 1)[:, None].expand(-1, 3, -1, -1)


def _directions(values: Tensor, _: Tensor) -> Tensor:
    return (F.normalize(values.float(), dim=1) + 1) / 2


def _distances(values: Tensor, truth: Tensor) -> Tensor:
    known = truth[known_depths(truth)].float()
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    steps = ((values.float() - low) / max(high - low, 1e-6)).clamp(0, 1) * (len(_RAMP) - 1)
    below = steps.long().clamp(max=len(_RAMP) - 2)
    return torch.lerp(_RAMP[below], _RAMP[below + 1], (steps - below)[..., None]).movedim(-1, 1)


LOOKS: Mapping[str, Look] = MappingProxyType(
    {
        Segmentation.__name__: Look(lambda output: output.argmax(1), _labelled, _classes),
        Saliency.__name__: Look(lambda output: output.softmax(1)[:, 1], _labelled, _greys),
        Edges.__name__: Look(lambda output: output[:, 0].sigmoid(), _labelled, _greys),
        Normals.__name__: Look(
            lambda output: output, lambda t: known_normals(t)[:, 0], _directions
        ),
        Depth.__name__: Look(lambda output: output[:, 0], known_depths, _distances),
    }
)
"""By the name of the task's class, as `run.json` has it."""
