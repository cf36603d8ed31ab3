"""The imprint attack: a malicious server's layer that writes single images into the gradient.

Fowl, Geiping, Czaja, Goldblum and Goldstein: Robbing the Fed: Directly Obtaining Private Data in
Federated Learning with Modified Models, ICLR 2022.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

LOWEST = -10.0
"""Below the mean of any image, so that the first bin excludes none."""
_NOTHING = 1e-5  # relative to the largest bias gradient; rounding errors in empty bins are smaller


class Imprint(nn.Module):
    """A layer in front of a model that sorts images by their mean into bins, one unit per bin.

    Every unit computes the mean of all pixels and outputs zero below its own cutoff. All units
    pass the same signal on, so the gradients of two neighbours differ only by the images between
    their cutoffs.

    Args:
        shape: The shape of one image.
        cutoffs: The lower bounds of the bins, in ascending order.
    """

    def __init__(self, shape: Sequence[int], cutoffs: Tensor) -> None:
        super().__init__()
        self.shape = tuple(shape)
        numbers = math.prod(shape)
        self.sort = nn.Linear(numbers, len(cutoffs))
        self.back = nn.Linear(len(cutoffs), numbers)
        with torch.no_grad():
            self.sort.weight.fill_(1 / numbers)
            self.sort.bias.copy_(-cutoffs)
            self.back.weight.fill_(1 / len(cutoffs))
            self.back.bias.zero_()

    def forward(self, pictures: Tensor) -> Tensor:
        """Images of one grey level each; only the gradient of this layer matters."""
        signal: Tensor = self.back(self.sort(pictures.flatten(1)).relu())
        return signal.view(-1, *self.shape)


def laplace_cutoffs(bins: int, middle: float, scale: float) -> Tensor:
    """Cutoffs of bins with equal probability, if the means of images follow a Laplace distribution.

    Args:
        bins: The number of bins.
        middle: The median of the distribution.
        scale: The scale of the distribution.
    """
    shares = torch.arange(1, bins, dtype=torch.float64) / bins - 0.5
    quantiles = middle - scale * shares.sign() * torch.log1p(-2 * shares.abs())
    return torch.cat([torch.tensor([LOWEST], dtype=torch.float64), quantiles]).float()


def imprinted(weight: Tensor, bias: Tensor) -> Tensor:
    """Recovers images from the gradients of `Imprint.sort`.

    Args:
        weight: The gradient of the weights.
        bias: The gradient of the biases.

    Returns:
        One flat image per bin that is not empty: the image itself if it is alone in its bin,
        otherwise the weighted mean of the images in it.
    """
    weight, bias = weight.double(), bias.double()
    pictures = weight - torch.cat([weight[1:], torch.zeros_like(weight[:1])])
    amounts = bias - torch.cat([bias[1:], torch.zeros_like(bias[:1])])
    held = amounts.abs() > _NOTHING * bias.abs().max()
    return (pictures[held] / amounts[held, None]).float()
