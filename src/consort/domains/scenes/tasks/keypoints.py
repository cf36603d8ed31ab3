"""Key points: the joints of figures, and which of them belong together."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from consort.domains.scenes.metrics.average_precision import Detections, mean_average_precision
from consort.domains.scenes.metrics.keypoints import keypoint_similarity
from consort.domains.scenes.tasks.dense import DenseTask
from consort.domains.scenes.tasks.figures import found_figures
from consort.domains.scenes.tasks.heat import gaussians
from consort.tasks.task import Meter

_TAG_WEIGHT, _PUBLISHED_WIDTH = 1e-3, 2 / 128  # sigma of heat maps / longer side
_FIGURES = 20  # the largest number of figures per image, as in COCO


@dataclass(frozen=True)
class KeyPoints(DenseTask):
    """Joints of figures by associative embedding (Newell et al. 2017); reported by COCO's AP.

    Targets are figures x joints x 4: x and y in pixels from the upper left corner (the centre of
    the first pixel is 0.5), the visibility (2 visible, 1 hidden, 0 unknown), and the area of the
    figure in pixels. Unknown joints, and rows that no figure uses, are zero. Outputs are for every
    joint a heat map of its position, then for every joint a map of tags, which are similar within
    a figure.

    Raises:
        ValueError: If `mirrored` does not pair up as many joints as there are `sigmas`.
    """

    sigmas: tuple[float, ...]
    """For each joint COCO's constant of how precisely people annotate it."""
    mirrored: tuple[int, ...]
    """For each joint its counterpart on the other side."""
    sigma: float = 8.0
    """The standard deviation of heat maps in pixels; published are 2 pixels at a quarter size."""
    emphasis: float = 0.0
    """The additional weight of errors at joints; for small images and models."""
    metric: str = "ap"
    higher_is_better: bool = True

    points = True

    def __post_init__(self) -> None:
        pairs = dict(enumerate(self.mirrored))
        twice = [pairs.get(joint) for joint in self.mirrored]
        if not self.sigmas or twice != [*range(len(self.sigmas))]:
            raise ValueError(
                f"mirrored = {list(self.mirrored)} does not pair up {len(self.sigmas)} joints"
            )

    @property
    def joints(self) -> int:
        """The number of joints."""
        return len(self.sigmas)

    @property
    def outputs(self) -> int:
        """A heat map and a map of tags for every joint."""
        return 2 * self.joints

    def seen(self, target: Tensor, scale: Tensor, mirrored: Tensor) -> Tensor:
        """In a mirrored image left and right joints are swapped; enlarging increases areas."""
        swapped = torch.where(
            mirrored[:, None, None, None], target[:, :, list(self.mirrored)], target
        )
        area = swapped[..., 3:] * scale[:, None, None, None].square()
        return torch.cat([swapped[..., :3], area], -1)

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """The squared error of heat maps plus `tag_loss`.

        The error of heat maps grows with the area of Gaussians and with `emphasis`; tags are
        weighted by the same factor, which keeps the published balance of both.

        Args:
            output: Heat maps and tags, images x outputs x height x width.
            target: Images x figures x joints x 4.

        Returns:
            A scalar.
        """
        heat, tags = torch.split(output, self.joints, 1)
        size = (output.shape[-2], output.shape[-1])
        pixels, there = joint_pixels(target, size)
        truth = gaussians(pixels.transpose(1, 2), there.transpose(1, 2), self.sigma, size)
        places = ((heat - truth).square() * (1 + self.emphasis * truth)).mean()
        area = (self.sigma / max(size) / _PUBLISHED_WIDTH) ** 2
        weight = _TAG_WEIGHT * area * (1 + self.emphasis)
        return places + weight * tag_loss(tags, pixels, there)

    def meter(self) -> Meter:
        """A new, empty meter."""
        return KeyPointsMeter(self)


def joint_pixels(target: Tensor, size: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """The pixels of all joints.

    Args:
        target: Figures x joints x 4, as in `KeyPoints`.
        size: Height and width of the image.

    Returns:
        Row and column of each joint, and whether it is known and inside the image.
    """
    pixels = target[..., [1, 0]].floor().long()
    height, width = size
    down, right = pixels.unbind(-1)
    inside = (down >= 0) & (down < height) & (right >= 0) & (right < width)
    return pixels, inside & (target[..., 2] > 0)


def tag_loss(tags: Tensor, pixels: Tensor, there: Tensor) -> Tensor:
    """Pull: the variance of tags within figures. Push: the similarity of mean tags of two figures.

    Both are averaged over the figures, or pairs of figures, of an image, and then over images.

    Args:
        tags: The tag maps, images x joints x height x width.
        pixels: Row and column of each joint.
        there: Which joints are known and inside the image.

    Returns:
        A scalar.
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
    """AP over OKS thresholds from .50 to .95, AP50 and AP75, and the loss.

    Args:
        task: The task that is evaluated.
    """

    def __init__(self, task: KeyPoints) -> None:
        self.task = task
        self.figures = Detections(_FIGURES)
        self.images, self.loss = 0, 0.0

    def update(self, output: Tensor, target: Tensor) -> None:
        """Adds a batch of maps (`output`) and figures (`target`)."""
        self.loss += self.task.loss(output, target).item() * len(target)
        self.images += len(target)
        sigmas = torch.tensor(self.task.sigmas, dtype=torch.float64)
        for maps, figures in zip(output, target.double(), strict=True):
            known = figures[(figures[..., 2] > 0).any(1)]
            found, scores = found_figures(*torch.split(maps, self.task.joints))
            similarity = keypoint_similarity(found.double(), known, sigmas)
            self.figures.add(scores, similarity, torch.zeros(len(scores)))

    def compute(self) -> dict[str, float]:
        """The metrics; empty if there were no figures."""
        scores = mean_average_precision([self.figures])
        return scores and {**scores, "loss": self.loss / self.images}
