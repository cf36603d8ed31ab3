"""How answers of dense tasks look: what a model puts out, and the truth, as colours of pixels."""

from __future__ import annotations

import colorsys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from consort.domains.scenes.metrics.panoptic import NUMBERS
from consort.domains.scenes.metrics.panoptic import UNKNOWN as UNKNOWN_CODE
from consort.domains.scenes.tasks.dense import IGNORED
from consort.domains.scenes.tasks.edges import Edges
from consort.domains.scenes.tasks.figures import found_figures
from consort.domains.scenes.tasks.geometry import Depth, Normals, known_depths, known_normals
from consort.domains.scenes.tasks.keypoints import KeyPoints
from consort.domains.scenes.tasks.panoptic import Instances, Panoptic
from consort.domains.scenes.tasks.segmentation import Saliency, Segmentation

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

    answers: Callable[[Tensor, Any], Tensor]
    """Turns outputs of a model for a task into what targets are."""
    known: Callable[[Tensor], Tensor]
    """Which pixels (or joints) of targets have an answer."""
    paint: Callable[[Tensor, Tensor], Tensor]
    """Colours from 0 to 1, channels first, of answers; the truth tells which range they have."""

    def truth(self, target: Tensor, size: Sequence[int]) -> Tensor:  # noqa: ARG002
        """The picture of the truth, with a colour of its own where it is not known."""
        pixels = self.paint(target, target)
        return torch.where(self.known(target)[:, None], pixels, UNKNOWN[:, None, None])

    def answer(self, output: Tensor, target: Tensor, task: Any) -> Tensor:
        """The picture of what a model put out for a task."""
        return self.paint(self.answers(output, task), target)


class PointsLook(Look):
    """For targets that are places: dots on a dark ground, a colour for every joint."""

    def truth(self, target: Tensor, size: Sequence[int]) -> Tensor:
        """The joints that are known."""
        return _dots(target, size)

    def answer(self, output: Tensor, target: Tensor, task: Any) -> Tensor:  # noqa: ARG002
        """The joints of all figures that were found."""
        return _dots(self.answers(output, task), output.shape[-2:])


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


def _things(values: Tensor, _: Tensor) -> Tensor:
    """The colour of the class, which every thing has in a shade of its own."""
    shade = 1 - 0.5 * (values % NUMBERS * _GOLDEN % 1)
    return _CLASSES[values.long() // NUMBERS].movedim(-1, 1) * shade[:, None]


def _codes(output: Tensor, task: Panoptic) -> Tensor:
    return torch.stack([task.found(maps)[0] for maps in output])


def _figures(output: Tensor, task: KeyPoints) -> Tensor:
    """What was found, as targets are: x, y and a 2 for every joint."""
    found = [found_figures(*torch.split(maps, task.joints))[0] for maps in output]
    most = max(map(len, found), default=0)
    return torch.stack(
        [F.pad(F.pad(one, (0, 1), value=2.0), (0, 0, 0, 0, 0, most - len(one))) for one in found]
    )


def _dots(figures: Tensor, size: Sequence[int]) -> Tensor:
    height, width = size
    pixels = _CLASSES[0][:, None, None].repeat(len(figures), 1, height, width)
    reach = max(min(height, width) // 48, 1)
    for image, figure, joint in (figures[..., 2] > 0).nonzero().tolist():
        right, down = (int(value) for value in figures[image, figure, joint, :2])
        rows, columns = (slice(max(at - reach, 0), at + reach + 1) for at in (down, right))
        pixels[image, :, rows, columns] = _CLASSES[joint + 1][:, None, None]
    return pixels


LOOKS: Mapping[str, Look] = MappingProxyType(
    {
        Segmentation.__name__: Look(lambda output, _: output.argmax(1), _labelled, _classes),
        Saliency.__name__: Look(lambda output, _: output.softmax(1)[:, 1], _labelled, _greys),
        Edges.__name__: Look(lambda output, _: output[:, 0].sigmoid(), _labelled, _greys),
        Normals.__name__: Look(
            lambda output, _: output, lambda t: known_normals(t)[:, 0], _directions
        ),
        Depth.__name__: Look(lambda output, _: output[:, 0], known_depths, _distances),
        Panoptic.__name__: Look(_codes, lambda t: t < UNKNOWN_CODE, _things),
        Instances.__name__: Look(_codes, lambda t: t < UNKNOWN_CODE, _things),
        KeyPoints.__name__: PointsLook(_figures, lambda t: t[..., 2] > 0, lambda v, _: v),
    }
)
"""By the name of the task's class, as `run.json` has it."""
