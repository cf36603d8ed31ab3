"""Twelve random transforms of signatures (FedMH, Table 4), drawn anew for each image.

Every transform takes a batch of images (N, C, H, W) of bright ink, with values from 0 to 1, and a
generator, and returns a new batch. Paper is black, and so are new pixels at the border.
"""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor
from torch.nn import functional as F


def shear(images: Tensor, generator: Generator) -> Tensor:
    """Shears the image by up to 8 degrees, along its rows or its columns."""
    slope = _between(-8, 8, (len(images),), generator).deg2rad().tan()
    rows = torch.rand(len(images), generator=generator) < 0.5
    zero = torch.zeros_like(slope)
    return _warped(images, zero + 1, slope * rows, slope * ~rows, zero + 1, zero, zero)


def translation(images: Tensor, generator: Generator) -> Tensor:
    """Shifts the image by up to 5 % of its width and of its height."""
    x, y = _between(-0.05, 0.05, (2, len(images)), generator)
    zero = torch.zeros_like(x)
    width, height = images.shape[3], images.shape[2]
    return _warped(images, zero + 1, zero, zero, zero + 1, x * width, y * height)


def rotation(images: Tensor, generator: Generator) -> Tensor:
    """Rotates the image by up to 10 degrees."""
    angle = _between(-10, 10, (len(images),), generator).deg2rad()
    cos, sin, zero = angle.cos(), angle.sin(), torch.zeros_like(angle)
    return _warped(images, cos, sin, -sin, cos, zero, zero)


def contrast(images: Tensor, generator: Generator) -> Tensor:
    """Scales the differences from the mean by a factor from 0.8 to 1.2."""
    mean = images.mean((1, 2, 3), keepdim=True)
    return (mean + _factor(0.8, 1.2, images, generator) * (images - mean)).clamp_(0, 1)


def brightness(images: Tensor, generator: Generator) -> Tensor:
    """Multiplies all values by a factor from 0.8 to 1.2."""
    return (images * _factor(0.8, 1.2, images, generator)).clamp_(0, 1)


def gamma(images: Tensor, generator: Generator) -> Tensor:
    """Raises all values to a power from 0.7 to 1.5."""
    return images.pow(_factor(0.7, 1.5, images, generator))


def gaussian_noise(images: Tensor, generator: Generator) -> Tensor:
    """Adds Gaussian noise with a standard deviation of 0.02."""
    return (images + 0.02 * torch.randn(images.shape, generator=generator)).clamp_(0, 1)


def gaussian_blur(images: Tensor, generator: Generator) -> Tensor:
    """Blurs with a standard deviation of 0.5 to 1.5 pixels."""
    return blurred(images, _between(0.5, 1.5, (len(images),), generator))


def motion_blur(images: Tensor, generator: Generator) -> Tensor:
    """Blurs along a line of 5, 7 or 9 pixels in a random direction."""
    half = torch.randint(2, 5, (len(images), 1, 1), generator=generator)
    angle = _between(0, math.pi, (len(images), 1, 1), generator)
    x, y = torch.arange(-4.0, 5.0), torch.arange(-4.0, 5.0)[:, None]
    along = (x * angle.cos() + y * angle.sin()).abs()
    aside = (y * angle.cos() - x * angle.sin()).abs()
    kernels = (1 - aside).clamp_(min=0) * (half + 0.5 - along).clamp_(0, 1)
    return _filtered(images, kernels / kernels.sum((1, 2), keepdim=True))


def cropping(images: Tensor, generator: Generator) -> Tensor:
    """Erases one to three boxes with sides of 5 to 15 % of the image's."""
    count, _, height, width = images.shape
    boxes = torch.randint(1, 4, (count, 1), generator=generator) > torch.arange(3)
    rows, columns = (
        _inside(count, side, generator) & boxes[:, :, None] for side in (height, width)
    )
    holes = (rows[:, :, :, None] & columns[:, :, None, :]).any(1)
    return images.masked_fill(holes[:, None], 0)


def blurred(images: Tensor, deviations: Tensor) -> Tensor:
    """Convolves each image with a Gaussian.

    Args:
        images: Images x channels x height x width.
        deviations: The standard deviation for each image, in pixels.

    Returns:
        The blurred images.
    """
    reach = math.ceil(3 * float(deviations.max()))
    steps = torch.arange(-reach, reach + 1.0)
    kernels = torch.exp(-((steps / deviations[:, None]) ** 2) / 2)
    kernels = kernels / kernels.sum(1, keepdim=True)
    return _filtered(_filtered(images, kernels[:, None, :]), kernels[:, :, None])


def _filtered(images: Tensor, kernels: Tensor) -> Tensor:
    """Convolves each image with its own kernel (N, h, w)."""
    count, channels, height, width = images.shape
    weights = kernels.repeat_interleave(channels, 0)[:, None]
    padding = kernels.shape[1] // 2, kernels.shape[2] // 2
    flat = images.reshape(1, count * channels, height, width)
    return F.conv2d(flat, weights, padding=padding, groups=count * channels).view_as(images)


def _warped(
    images: Tensor, xx: Tensor, xy: Tensor, yx: Tensor, yy: Tensor, x: Tensor, y: Tensor
) -> Tensor:
    """Samples the pixel at p (relative to the centre) at (xx, xy; yx, yy) p + (x, y), in pixels."""
    height, width = images.shape[2:]
    shape = height / width
    entries = xx, xy * shape, x * (2 / width), yx / shape, yy, y * (2 / height)
    grid = F.affine_grid(
        torch.stack(entries, 1).view(-1, 2, 3), list(images.shape), align_corners=False
    )
    return F.grid_sample(images, grid, align_corners=False)


def _inside(count: int, side: int, generator: Generator) -> Tensor:
    """Which pixels along a side lie in each of three random boxes (N, 3, side)."""
    length = _between(0.05, 0.15, (count, 3, 1), generator) * side
    start = torch.rand(count, 3, 1, generator=generator) * (side - length)
    pixels = torch.arange(side) + 0.5
    return (start <= pixels) & (pixels < start + length)


def _factor(low: float, high: float, images: Tensor, generator: Generator) -> Tensor:
    return _between(low, high, (len(images), 1, 1, 1), generator)


def _between(low: float, high: float, shape: tuple[int, ...], generator: Generator) -> Tensor:
    return torch.rand(shape, generator=generator) * (high - low) + low
