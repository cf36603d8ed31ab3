"""Draws the predictions and the ground truth of dense tasks as images."""

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
"""The colour of pixels without ground truth."""

_GOLDEN = 0.618034
"""The golden ratio of a full turn: hues at this distance stay distinct, however many there are."""
_TONES = ((0.60, 0.95), (0.80, 0.70), (0.35, 0.85), (0.90, 0.95), (0.55, 0.60))
"""Pairs of saturation and brightness."""
_RAMP = torch.tensor([[253, 231, 55], [53, 183, 121], [49, 104, 142], [68, 1, 84]]) / 255
"""Colours from near to far."""


@dataclass(frozen=True)
class TaskRenderer:
    """Draws one kind of task; the first dimension of all tensors is the batch."""

    decode: Callable[[Tensor, Any], Tensor]
    """Converts the outputs of a model into the form of targets."""
    known: Callable[[Tensor], Tensor]
    """Which pixels (or key points) of targets are labelled."""
    paint: Callable[[Tensor, Tensor], Tensor]
    """Colours from 0 to 1, channels first, of values in the form of targets; the second argument is
    the ground truth, which determines the range."""

    def truth(self, target: Tensor, size: Sequence[int]) -> Tensor:  # noqa: ARG002
        """Draws the ground truth, with a colour of its own where it is unknown.

        Args:
            target: The ground truth.
            size: Height and width of the images.
        """
        pixels = self.paint(target, target)
        return torch.where(self.known(target)[:, None], pixels, UNKNOWN[:, None, None])

    def prediction(self, output: Tensor, target: Tensor, task: Any) -> Tensor:
        """Draws the prediction of a model.

        Args:
            output: The output of the model.
            target: The ground truth.
            task: The task.
        """
        return self.paint(self.decode(output, task), target)


class KeyPointRenderer(TaskRenderer):
    """Draws key points as dots on a dark background, each kind in its own colour."""

    def truth(self, target: Tensor, size: Sequence[int]) -> Tensor:
        """Draws the labelled key points."""
        return _dots(target, size)

    def prediction(self, output: Tensor, target: Tensor, task: Any) -> Tensor:  # noqa: ARG002
        """Draws the key points of all figures that were found."""
        return _dots(self.decode(output, task), output.shape[-2:])


def class_colour(number: int) -> tuple[float, float, float]:
    """The colour of a class, the same in all images; class 0 is dark."""
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
    """The colour of the class, in a different shade for every instance."""
    shade = 1 - 0.5 * (values % NUMBERS * _GOLDEN % 1)
    return _CLASSES[values.long() // NUMBERS].movedim(-1, 1) * shade[:, None]


def _codes(output: Tensor, task: Panoptic) -> Tensor:
    return torch.stack([task.found(maps)[0] for maps in output])


def _figures(output: Tensor, task: KeyPoints) -> Tensor:
    """The figures that were found, in the form of targets: x, y and a 2 for every key point."""
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


RENDERERS: Mapping[str, TaskRenderer] = MappingProxyType(
    {
        Segmentation.__name__: TaskRenderer(
            lambda output, _: output.argmax(1), _labelled, _classes
        ),
        Saliency.__name__: TaskRenderer(
            lambda output, _: output.softmax(1)[:, 1], _labelled, _greys
        ),
        Edges.__name__: TaskRenderer(lambda output, _: output[:, 0].sigmoid(), _labelled, _greys),
        Normals.__name__: TaskRenderer(
            lambda output, _: output, lambda t: known_normals(t)[:, 0], _directions
        ),
        Depth.__name__: TaskRenderer(lambda output, _: output[:, 0], known_depths, _distances),
        Panoptic.__name__: TaskRenderer(_codes, lambda t: t < UNKNOWN_CODE, _things),
        Instances.__name__: TaskRenderer(_codes, lambda t: t < UNKNOWN_CODE, _things),
        KeyPoints.__name__: KeyPointRenderer(_figures, lambda t: t[..., 2] > 0, lambda v, _: v),
    }
)
"""By the name of the task's class, as in `run.json`."""
