"""OctConvNet: octave convolutions (Chen et al. 2019) keep half of their maps at half resolution."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import PositiveFloat, PositiveInt
from torch import Tensor, nn
from torch.nn import functional as F

from consort.models.inputs import image_shape
from consort.models.layers import dense, padded, thinned


class OctConv(nn.Module):
    """A 3x3 octave convolution, with BatchNorm and ReLU after the sum of its paths.

    Channels are of kind `high` or `low`; the feature maps of `low` ones have half the resolution.

    Args:
        inputs: The number of input channels of each kind.
        outputs: The number of output channels of each kind.
    """

    def __init__(self, inputs: Mapping[str, int], outputs: Mapping[str, int]) -> None:
        super().__init__()
        self.paths = nn.ModuleDict(
            {
                f"{start}_to_{end}": nn.Conv2d(before, after, 3, padding=1, bias=False)
                for start, before in inputs.items()
                for end, after in outputs.items()
            }
        )
        self.norms = nn.ModuleDict({end: nn.BatchNorm2d(count) for end, count in outputs.items()})

    def forward(self, maps: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The output feature maps of each kind, given the input `maps` of each kind."""
        outputs = {}
        for end, norm in self.norms.items():
            first, *others = (self._along(start, end, part) for start, part in maps.items())
            outputs[end] = F.relu(norm(sum(others, first)), inplace=True)
        return outputs

    def _along(self, start: str, end: str, maps: Tensor) -> Tensor:
        if (start, end) == ("high", "low"):
            maps = F.avg_pool2d(maps, 2)
        result: Tensor = self.paths[f"{start}_to_{end}"](maps)
        if (start, end) == ("low", "high"):
            result = F.interpolate(result, scale_factor=2.0)
        return result


class OctConvNet(nn.Module):
    """OctConvNet: three octave convolutions and two fully connected layers, all with BatchNorm.

    Images are padded with zeros to multiples of eight, so that they can be halved three times.

    Args:
        shape: Channels, height and width of the images.
        scale: The factor for the width of all layers but the last.
        features: The width of the last layer.
    """

    measure = staticmethod(image_shape)

    def __init__(
        self,
        shape: tuple[int, int, int],
        scale: PositiveFloat = 1.0,
        features: PositiveInt = 2048,
    ) -> None:
        super().__init__()
        channels, *sides = shape
        eight, four, hidden = (thinned(full, scale) for full in (8, 4, 6400))
        height, width = (-(-side // 8) * 2 for side in sides)
        self.first = OctConv({"high": channels}, {"high": eight, "low": eight})
        self.second = OctConv({"high": eight, "low": eight}, {"high": four, "low": four})
        self.third = OctConv({"high": four, "low": four}, {"high": four})
        self.layers = nn.Sequential(dense(four * height * width, hidden), dense(hidden, features))
        self.width = features

    def forward(self, images: Tensor) -> Tensor:
        """The features of a batch of `images`."""
        maps = self.first({"high": padded(images, 8)})
        maps = self.second(_pooled(maps))
        maps = self.third(_pooled(maps))
        features: Tensor = self.layers(maps["high"].flatten(1))
        return features


def _pooled(maps: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {kind: F.max_pool2d(part, 2) for kind, part in maps.items()}
