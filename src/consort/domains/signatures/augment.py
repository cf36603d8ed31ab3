"""Random augmentation of signatures: five schemes of two transforms each (FedMH, appendix A)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from consort.domains.signatures import transforms as to

Transform = Callable[[Tensor, Generator], Tensor]
"""Transforms a batch of images with a generator."""
Scheme = tuple[tuple[Transform, float], ...]
"""Transforms in the order of application, each with its probability."""

SCHEMES: tuple[Scheme, ...] = (
    ((to.cropping, 0.4), (to.rotation, 0.5)),
    ((to.translation, 0.4), (to.brightness, 0.5)),
    ((to.contrast, 0.5), (to.gamma, 0.4)),
    ((to.gaussian_noise, 0.3), (to.gaussian_blur, 0.3)),
    ((to.shear, 0.3), (to.motion_blur, 0.2)),
)
"""The schemes of the paper, which says "clipping" where shear is used here."""


def augmented(
    images: Tensor, generator: Generator, schemes: tuple[Scheme, ...] = SCHEMES
) -> Tensor:
    """Draws a scheme for every image and applies each of its transforms with its probability.

    Args:
        images: Values from 0 to 1, images x channels x height x width.
        generator: The source of randomness.
        schemes: The schemes to draw from.

    Returns:
        The augmented images.
    """
    scheme = torch.randint(len(schemes), (len(images),), generator=generator)
    luck = torch.rand(max(map(len, schemes)), len(images), generator=generator)
    result = images.clone()
    for number, steps in enumerate(schemes):
        for place, (transform, probability) in enumerate(steps):
            chosen = ((scheme == number) & (luck[place] < probability)).nonzero()[:, 0]
            if len(chosen):
                result[chosen] = transform(result[chosen], generator)
    return result
