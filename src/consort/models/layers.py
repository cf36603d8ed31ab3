"""What the signature models are made of."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional as F


def thinned(full: int, scale: float) -> int:
    """A layer's width at this scale: at least one."""
    return max(1, round(scale * full))


def shrunk(side: int, kernel: int, stride: int) -> int:
    """What a convolution or a pool without padding leaves of a side."""
    return (side - kernel) // stride + 1


def padded(images: Tensor, multiple: int) -> Tensor:
    """Images with zeros, which is blank paper, added until both sides are multiples."""
    height, width = images.shape[-2:]
    if height % multiple == width % multiple == 0:
        return images
    return F.pad(images, (0, -width % multiple, 0, -height % multiple))


def convolution(
    inputs: int,
    outputs: int,
    kernel: int,
    stride: int = 1,
    padding: int = 0,
    bias: bool = False,
    norm: Callable[[int], nn.Module] = nn.BatchNorm2d,
) -> nn.Sequential:
    """A convolution with BatchNorm, or another norm of so many channels, and ReLU."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=bias),
        norm(outputs),
        nn.ReLU(inplace=True),
    )


def dense(inputs: int, outputs: int, bias: bool = False) -> nn.Sequential:
    """A fully connected layer with BatchNorm and ReLU."""
    return nn.Sequential(
        nn.Linear(inputs, outputs, bias=bias), nn.BatchNorm1d(outputs), nn.ReLU(inplace=True)
    )
