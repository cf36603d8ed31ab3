"""Synthetic images: a counterpart of CIFAR-10, and a set with two tasks per image."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from consort.core.randomness import derive
from consort.data.dataset import Dataset
from consort.data.examples import Examples
from consort.data.pixels import scale
from consort.domains.images.synthetic.drawing import SHAPES, TEXTURES, Pixels, draw
from consort.domains.images.synthetic.restyling import restyled
from consort.tasks import Classification

Count = Annotated[int, Field(ge=1)]
Size = Annotated[int, Field(ge=8)]
Noise = Annotated[float, Field(ge=0, allow_inf_nan=False)]


def synthetic_images(
    seed: int,
    *,
    classes: Annotated[int, Field(ge=2, le=len(SHAPES) * len(TEXTURES))] = 10,
    per_class: Count = 300,
    size: Size = 32,
    channels: Count = 3,
    noise: Noise = 0.1,
    domains: Count = 1,
) -> Dataset:
    """Textured shapes of random position, size and colour, from one or several cameras.

    Args:
        seed: The seed of all random choices.
        classes: The number of classes, each a combination of shape and texture.
        per_class: The number of images per class.
        size: The side of the images in pixels.
        channels: The number of channels.
        noise: The standard deviation of the pixel noise, for values from 0 to 1.
        domains: The number of cameras, which differ in contrast, colours and sharpness.

    Returns:
        The data set with the task `classify`; its domains are the cameras.
    """
    rng = np.random.default_rng(derive(seed, "synthetic_images"))
    labels = rng.permutation(np.repeat(np.arange(classes), per_class))
    shapes, textures = labels % len(SHAPES), (labels + labels // len(SHAPES)) % len(TEXTURES)
    pictures = draw(rng, shapes, textures, size, channels)
    cameras = rng.permutation(np.arange(len(labels)) % domains)
    for camera in range(1, domains):
        pictures[cameras == camera] = restyled(rng, pictures[cameras == camera])
    return Dataset(
        name="synthetic_images",
        examples=Examples(
            _with_noise(rng, pictures, noise), {"classify": torch.from_numpy(labels)}
        ),
        tasks={"classify": Classification(classes)},
        labels=labels,
        domains=cameras if domains > 1 else None,
        prepare=scale,
    )


def synthetic_shapes(
    seed: int,
    *,
    shapes: Annotated[int, Field(ge=2, le=len(SHAPES))] = 5,
    textures: Annotated[int, Field(ge=2, le=len(TEXTURES))] = 4,
    examples: Count = 3000,
    size: Size = 32,
    channels: Count = 3,
    noise: Noise = 0.05,
) -> Dataset:
    """Textured shapes with two tasks on every image: classify the shape and the texture.

    Args:
        seed: The seed of all random choices.
        shapes: The number of shapes.
        textures: The number of textures.
        examples: The number of images.
        size: The side of the images in pixels.
        channels: The number of channels.
        noise: The standard deviation of the pixel noise, for values from 0 to 1.

    Returns:
        The data set with the tasks `shape` and `texture`.
    """
    rng = np.random.default_rng(derive(seed, "synthetic_shapes"))
    labels = rng.permutation(np.arange(examples) % (shapes * textures))
    targets = {"shape": labels // textures, "texture": labels % textures}
    pictures = draw(rng, targets["shape"], targets["texture"], size, channels)
    return Dataset(
        name="synthetic_shapes",
        examples=Examples(
            _with_noise(rng, pictures, noise),
            {task: torch.from_numpy(target) for task, target in targets.items()},
        ),
        tasks={"shape": Classification(shapes), "texture": Classification(textures)},
        labels=labels,
        prepare=scale,
    )


def _with_noise(rng: np.random.Generator, pictures: Pixels, noise: float) -> Tensor:
    """Adds pixel noise and converts to bytes."""
    grain = rng.standard_normal(pictures.shape, dtype=np.float32) * np.float32(noise)
    return torch.from_numpy(np.rint(np.clip(pictures + grain, 0, 1) * 255).astype(np.uint8))
