"""Varying signatures at random: five schemes of two transforms each (appendix A of FedMH)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from consort.domains.signatures import transforms as to

Transform = Callable[[Tensor, Generator], Tensor]
Scheme = tuple[tuple[Transform, float], ...]

SCHEMES: tuple[Scheme, ...] = (
    ((to.cropping, 0.4), (to.rotation, 0.5)),
    ((to.translation, 0.4), (to.brightness, 0.5)),
    ((to.contrast, 0.5), (to.gamma, 0.4)),
    ((to.gaussian_noise, 0.3), (to.gaussian_blur, 0.3)),
    ((to.shear, 0.3), (to.motion_blur, 0.2)),
)
"""Each transform with its probability. The paper says "clipping" where shear stands here."""


def augmented(
    images: Tensor, generator: Generator, schemes: tuple[Scheme, ...] = SCHEMES
) -> Tensor:
    """Every image after the transforms of a scheme drawn for it, each with its probability."""
    scheme = torch.randint(len(schemes), (len(images),), generator=generator)
    luck = torch.rand(max(map(len, schemes)), len(images), generator=generator)
    result = images.clone()
    for number, steps in enumerate(schemes):
        for place, (transform, probability) in enumerate(steps):
            chosen = ((scheme == number) & (luck[place] < probability)).nonzero()[:, 0]
            if len(chosen):
                result[chosen] = transform(result[chosen], generator)
    return result


def random_crop(images: Tensor, size: tuple[int, int], generator: Generator) -> Tensor:
    """A part of each image, anywhere in it."""
    (rows, columns) = (
        torch.randint(room - side + 1, (len(images), 1), generator=generator) + torch.arange(side)
        for room, side in zip(images.shape[2:], size, strict=True)
    )
    each = torch.arange(len(images))[:, None, None]
    return images[each, :, rows[:, :, None], columns[:, None, :]].movedim(3, 1).contiguous()


def centre_crop(images: Tensor, size: tuple[int, int]) -> Tensor:
    """The middle of each image."""
    (height, width), (tall, wide) = images.shape[2:], size
    return images[:, :, (height - tall) // 2 :, (width - wide) // 2 :][:, :, :tall, :wide]
