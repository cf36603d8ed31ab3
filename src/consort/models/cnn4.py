"""The four-layer CNN of PFLlib (`FedAvgCNN`); its fourth layer is the task's head."""

from __future__ import annotations

from pydantic import PositiveFloat
from torch import Tensor, nn
from torch.nn import functional as F

from consort.errors import UsageError
from consort.models.inputs import image_shape

SMALLEST_SIDE = 16
"""The smallest height and width, in pixels, that both poolings leave something of."""


class Cnn4(nn.Module):
    """Two 5x5 convolutions with pooling and a layer of 512 features; `scale` multiplies all widths.

    Args:
        shape: Channels, height and width of the images.
        scale: The factor for the number of channels and features.

    Raises:
        UsageError: If the images are smaller than 16x16 pixels.
    """

    measure = staticmethod(image_shape)

    def __init__(self, shape: tuple[int, int, int], scale: PositiveFloat = 1.0) -> None:
        super().__init__()
        channels, *sides = shape
        if min(sides) < SMALLEST_SIDE:
            raise UsageError(f"it needs images of at least {SMALLEST_SIDE}x{SMALLEST_SIDE} pixels")
        first, second, self.width = (max(1, round(scale * full)) for full in (32, 64, 512))
        height, width = (((side - 4) // 2 - 4) // 2 for side in sides)
        self.conv1 = nn.Conv2d(channels, first, 5)
        self.conv2 = nn.Conv2d(first, second, 5)
        self.linear = nn.Linear(second * height * width, self.width)

    def forward(self, images: Tensor) -> Tensor:
        """The features of a batch of `images`."""
        # Pooling before ReLU gives the same bits with a quarter of the comparisons.
        maps = F.relu(F.max_pool2d(self.conv1(images), 2))
        maps = F.relu(F.max_pool2d(self.conv2(maps), 2))
        return F.relu(self.linear(maps.flatten(1)))
