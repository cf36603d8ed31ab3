"""A malicious server's layer that writes single pictures into the gradient.

Fowl, Geiping, Czaja, Goldblum and Goldstein: Robbing the Fed: Directly Obtaining Private Data in
Federated Learning with Modified Models, ICLR 2022.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

LOWEST = -10.0
"""Below the measurement of any picture, so that the first bin leaves nobody out."""
_NOTHING = 1e-5  # of the largest gradient of a bias: what rounding leaves in an empty bin


class Imprint(nn.Module):
    """In front of a model: sorts pictures by their mean into bins, one unit for each.

    Every unit measures the same, the mean of all pixels, and is silent below its own cutoff. All
    pass the same signal on, so neighbours differ only by the pictures between their cutoffs.
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
        """Grey pictures of the same shape; the gradient is what this is for."""
        signal: Tensor = self.back(self.sort(pictures.flatten(1)).relu())
        return signal.view(-1, *self.shape)


def laplace_cutoffs(bins: int, middle: float, scale: float) -> Tensor:
    """Cutoffs between which means of pictures fall equally often, if they are Laplace's."""
    shares = torch.arange(1, bins, dtype=torch.float64) / bins - 0.5
    quantiles = middle - scale * shares.sign() * torch.log1p(-2 * shares.abs())
    return torch.cat([torch.tensor([LOWEST], dtype=torch.float64), quantiles]).float()


def imprinted(weight: Tensor, bias: Tensor) -> Tensor:
    """The pictures in the gradients of `Imprint.sort`, flat: one for each bin that is not empty.

    A bin with one picture gives it exactly, one with several their weighted mean.
    """
    weight, bias = weight.double(), bias.double()
    pictures = weight - torch.cat([weight[1:], torch.zeros_like(weight[:1])])
    amounts = bias - torch.cat([bias[1:], torch.zeros_like(bias[:1])])
    held = amounts.abs() > _NOTHING * bias.abs().max()
    return (pictures[held] / amounts[held, None]).float()
