"""Where the joints of figures are, and which belong together."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from consort.domains.scenes.metrics.average_precision import Detections, mean_average_precision
from consort.domains.scenes.metrics.keypoints import keypoint_similarity
from consort.domains.scenes.tasks.dense import DenseTask
from consort.domains.scenes.tasks.figures import found_figures
from consort.domains.scenes.tasks.heat import bells
from consort.errors import UsageError
from consort.tasks.task import Meter

_TAG_WEIGHT, _PUBLISHED_WIDTH = 1e-3, 2 / 128  # of joints in their maps, by the longer side
_FIGURES = 20  # of an image that count, as COCO has it


@dataclass(frozen=True)
class KeyPoints(DenseTask):
    """Joints of figures by associative embedding (Newell et al. 2017); reported by COCO's AP.

    Targets are figures by joints by four numbers: x and y in pixels from the left upper corner
    (the middle of the first pixel is 0.5), how well the joint is seen (2 seen, 1 hidden, 0 not
    known), and the area of the figure in pixels. Joints that are not known, and figures that fill
    up the tensor, are all zero. Outputs are for every joint a map that is high where it is,
    then for every joint a map of tags, which are alike within a figure.
    """

    sigmas: tuple[float, ...]
    """Of every joint, how precisely people know its place, by COCO's definition."""
    mirrored: tuple[int, ...]
    """For every joint, which one it becomes in a mirror."""
    sigma: float = 8.0
    """How wide joints are in their maps, in pixels; published are 2 pixels of a quarter."""
    emphasis: float = 0.0
    """How much more errors weigh at joints than far from them; for small images and models."""
    metric: str = "ap"
    higher_is_better: bool = True

    points = True

    def __post_init__(self) -> None:
        pairs = dict(enumerate(self.mirrored))
        twice = [pairs.get(joint) for joint in self.mirrored]
        if not self.sigmas or twice != [*range(len(self.sigmas))]:
            raise ValueError(
                f"in a mirror, {len(self.sigmas)} joints cannot become {list(self.mirrored)}"
            )

    @property
    def joints(self) -> int:
        """How many there are."""
        return len(self.sigmas)

    @property
    def outputs(self) -> int:
        """A map of places and one of tags for every joint."""
        return 2 * self.joints

    def seen(self, target: Tensor, scale: Tensor, mirrored: Tensor) -> Tensor:
        """In a mirror, left is right; what is enlarged has a larger area."""
        swapped = torch.where(
            mirrored[:, None, None, None], target[:, :, list(self.mirrored)], target
        )
        area = swapped[..., 3:] * scale[:, None, None, None].square()
        return torch.cat([swapped[..., :3], area], -1)

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """The squared error of places, and what tags lack: see `tag_loss`.

        Errors of places grow with the area of joints in their maps, and with their emphasis; tags
        weigh more by as much, so that the balance of both is the published one.
        """
        heat, tags = torch.split(output, self.joints, 1)
        size = (output.shape[-2], output.shape[-1])
        pixels, there = joint_pixels(target, size)
        truth = bells(pixels.transpose(1, 2), there.transpose(1, 2), self.sigma, size)
        places = ((heat - truth).square() * (1 + self.emphasis * truth)).mean()
        area = (self.sigma / max(size) / _PUBLISHED_WIDTH) ** 2
        weight = _TAG_WEIGHT * area * (1 + self.emphasis)
        return places + weight * tag_loss(tags, pixels, there)

    def meter(self) -> Meter:
        """No figures yet."""
        return KeyPointsMeter(self)


def joint_pixels(target: Tensor, size: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """The pixel (down, right) of every joint, and whether it is known and inside."""
    pixels = target[..., [1, 0]].floor().long()
    height, width = size
    down, right = pixels.unbind(-1)
    inside = (down >= 0) & (down < height) & (right >= 0) & (right < width)
    return pixels, inside & (target[..., 2] > 0)


def tag_loss(tags: Tensor, pixels: Tensor, there: Tensor) -> Tensor:
    """Pull: the spread of tags within figures. Push: how alike mean tags of two figures are.

    Each is a mean over the figures, or pairs of figures, of an image, and then over images.
    """
    width = tags.shape[-1]
    place = torch.where(there, pixels[..., 0] * width + pixels[..., 1], 0)
    own = tags.flatten(2).gather(2, place.transpose(1, 2)).transpose(1, 2)
    count = there.sum(2)
    means = own.where(there, 0.0).sum(2) / count.clamp(min=1)
    spread = (own - means[..., None]).square().where(there, 0.0).sum(2) / count.clamp(min=1)
    some = count > 0
    alike = torch.exp(-(means[:, :, None] - means[:, None]).square() / 2)
    two = some[:, :, None] & some[:, None] & ~torch.eye(some.shape[1], dtype=torch.bool)
    pull = spread.sum(1) / some.sum(1).clamp(min=1)
    push = alike.where(two, 0.0).sum((1, 2)) / two.sum((1, 2)).clamp(min=1)
    return (pull + push).mean()


class KeyPointsMeter:
    """Average precision over thresholds of OKS from .50 to .95, at .50 and at .75; the loss."""

    def __init__(self, task: KeyPoints) -> None:
        self.task = task
        self.figures = Detections(_FIGURES)
        self.images, self.loss = 0, 0.0

    def update(self, output: Tensor, target: Tensor) -> None:
        """Takes one batch in."""
        self.loss += self.task.loss(output, target).item() * len(target)
        self.images += len(target)
        sigmas = torch.tensor(self.task.sigmas, dtype=torch.float64)
        for maps, figures in zip(output, target.double(), strict=True):
            known = figures[(figures[..., 2] > 0).any(1)]
            found, scores = found_figures(*torch.split(maps, self.task.joints))
            similarity = keypoint_similarity(found.double(), known, sigmas)
            self.figures.add(scores, similarity, torch.zeros(len(scores)))

    def compute(self) -> dict[str, float]:
        """Nothing, if there was no figure."""
        scores = mean_average_precision([self.figures])
        return scores and {**scores, "loss": self.loss / self.images}


def padded(figures: Tensor, most: int) -> Tensor:
    """The figures of one image (by joints, by four numbers) as a target with room for `most`."""
    if len(figures) > most:
        raise UsageError(f"an image has {len(figures)} figures, and there is room for {most}")
    return F.pad(figures, (0, 0, 0, 0, 0, most - len(figures)))
