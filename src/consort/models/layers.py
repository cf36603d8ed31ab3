"""Layers that several models share."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional as F


def thinned(full: int, scale: float) -> int:
    """The width `full` of a layer multiplied by `scale`, but at least 1."""
    return max(1, round(scale * full))


def shrunk(side: int, kernel: int, stride: int) -> int:
    """The length of a side after a convolution or a pooling without padding.

    Args:
        side: The length before, in pixels.
        kernel: The width of the kernel.
        stride: Its stride.

    Returns:
        The length after it, in pixels.
    """
    return (side - kernel) // stride + 1


def padded(images: Tensor, multiple: int) -> Tensor:
    """Pads images with zeros (blank paper) on the right and at the bottom.

    Args:
        images: Images; the last two dimensions are height and width.
        multiple: What both sides are made multiples of.

    Returns:
        The padded images; the same tensor if there is nothing to add.
    """
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
    """A convolution, followed by a norm (BatchNorm by default) and ReLU.

    Args:
        inputs: The number of input channels.
        outputs: The number of output channels.
        kernel: The width of the kernel.
        stride: The stride of the convolution.
        padding: The zero padding on each side.
        bias: Whether the convolution has a bias.
        norm: Builds the norm layer from its number of channels.

    Returns:
        The three layers in sequence.
    """
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=bias),
        norm(outputs),
        nn.ReLU(inplace=True),
    )


def dense(inputs: int, outputs: int, bias: bool = False) -> nn.Sequential:
    """A fully connected layer, followed by BatchNorm and ReLU.

    Args:
        inputs: The number of input features.
        outputs: The number of output features.
        bias: Whether the linear layer has a bias.

    Returns:
        The three layers in sequence.
    """
    return nn.Sequential(
        nn.Linear(inputs, outputs, bias=bias), nn.BatchNorm1d(outputs), nn.ReLU(inplace=True)
    )
