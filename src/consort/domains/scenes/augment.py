"""Augmentation of scenes and their targets: scale, crop, mirroring, contrast and colour."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from consort.data.examples import Examples
from consort.domains.scenes.tasks.dense import DenseTask
from consort.errors import UsageError
from consort.tasks import Task

_BATCH = 64


@dataclass(frozen=True)
class Views:
    """A view of each of several images: its scale, its position, and whether it is mirrored."""

    scale: Tensor
    """The magnification of each image."""
    centre: Tensor
    """The position of the centre of each view in its image, whose sides reach from -1 to 1."""
    mirrored: Tensor
    """Whether each image is mirrored."""


def random_views(count: int, generator: Generator) -> Views:
    """Draws views of half to double size, at any position that fits, and mirrors half of them.

    Args:
        count: The number of views.
        generator: The source of randomness.

    Returns:
        The views.
    """
    scale = 0.5 + 1.5 * torch.rand(count, generator=generator)
    room = (1 - 1 / scale).abs()[:, None]
    centre = room * (2 * torch.rand(count, 2, generator=generator) - 1)
    return Views(scale, centre, torch.rand(count, generator=generator) < 0.5)


def seen(examples: Examples, tasks: Mapping[str, Task], views: Views) -> Examples:
    """Transforms images and their targets to views; outside of an image, pixels are ignored.

    Args:
        examples: The examples.
        tasks: The tasks of the targets.
        views: One view per example.

    Returns:
        The transformed examples.

    Raises:
        UsageError: If a task has no target for every pixel.
    """
    grid = _grid(views, examples.tensor.shape[-2:])
    outside = (grid.abs() > 1).any(-1)
    targets = {}
    for name, target in examples.targets.items():
        task = tasks[name]
        if not isinstance(task, DenseTask):
            raise UsageError(
                f"local.augment needs tasks with a target for every pixel here, but {name} has "
                "none: remove local.augment, or that task"
            )
        if task.points:
            moved = _moved(target, views, examples.tensor.shape[-2:])
        else:
            moved = _sampled(target, grid, "nearest").where(~_like(outside, target), task.ignored)
        targets[name] = task.seen(moved.to(target.dtype), views.scale, views.mirrored)
    dark = examples.tensor.amin((1, 2, 3), keepdim=True)
    inputs = _sampled(examples.tensor, grid, "bilinear")
    return Examples(torch.where(_like(outside, inputs), dark, inputs), targets)


def relit(images: Tensor, generator: Generator) -> Tensor:
    """Changes the contrast, brightness and colour of every image a little.

    Args:
        images: The images.
        generator: The source of randomness.

    Returns:
        The changed images.
    """
    draw = 2 * torch.rand(3, len(images), 1, 1, 1, generator=generator) - 1
    contrast, brightness, colour = 1 + 0.2 * draw[0], 0.2 * draw[1], 1 + 0.3 * draw[2]
    grey = images.mean(1, keepdim=True)
    middle = grey.mean((2, 3), keepdim=True)
    return middle + contrast * (grey + colour * (images - grey) - middle) + brightness


def varied(examples: Examples, tasks: Mapping[str, Task], generator: Generator) -> Examples:
    """Transforms every example by a random view and random colours; an `Augmentation`.

    Args:
        examples: A client's examples, which are not changed.
        tasks: The client's tasks.
        generator: The source of randomness.

    Returns:
        The transformed examples.

    Raises:
        UsageError: If a task has no target for every pixel.
    """
    parts = []
    for batch in examples.batches(_BATCH):
        moved = seen(batch, tasks, random_views(len(batch), generator))
        parts.append(Examples(relit(moved.tensor, generator), moved.targets))
    return Examples.concatenate(parts) if parts else examples


def _grid(views: Views, size: torch.Size) -> Tensor:
    """For every pixel of the views, its position in the image: right and down, from -1 to 1."""
    height, width = size
    down = (2 * torch.arange(height) + 1) / height - 1
    right = (2 * torch.arange(width) + 1) / width - 1
    places = torch.stack(torch.meshgrid(right, down, indexing="xy"), -1).expand(
        len(views.scale), -1, -1, -1
    )
    flip = torch.where(views.mirrored, -1.0, 1.0)
    turned = torch.stack([places[..., 0] * flip[:, None, None], places[..., 1]], -1)
    return turned / views.scale[:, None, None, None] + views.centre[:, None, None, :]


def _sampled(values: Tensor, grid: Tensor, mode: str) -> Tensor:
    maps = values[:, None] if values.ndim == 3 else values
    found = F.grid_sample(maps.float(), grid, mode=mode, padding_mode="border", align_corners=False)
    return found[:, 0] if values.ndim == 3 else found


def _moved(points: Tensor, views: Views, size: torch.Size) -> Tensor:
    """The positions of points (x, y, visibility, …) in the views: the inverse of `_grid`.

    Points that are not visible or lie outside become zero.
    """
    sides = torch.tensor([size[1], size[0]])
    turn = torch.where(views.mirrored[:, None], torch.tensor([-1.0, 1.0]), torch.ones(2))
    stretch = (turn * views.scale[:, None])[:, None, None]
    places = (2 * points[..., :2] / sides - 1 - views.centre[:, None, None]) * stretch
    pixels = (places + 1) / 2 * sides
    there = ((pixels >= 0) & (pixels < sides)).all(-1) & (points[..., 2] > 0)
    return torch.cat([pixels, points[..., 2:]], -1).where(there[..., None], 0.0)


def _like(mask: Tensor, values: Tensor) -> Tensor:
    return mask if values.ndim == 3 else mask[:, None]
