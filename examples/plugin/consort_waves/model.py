"""An encoder that looks at frequencies."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Spectrum(nn.Module):
    """The strengths of all frequencies, then a hidden layer of `width` features."""

    def __init__(self, example: Tensor, width: int = 32) -> None:
        super().__init__()
        self.layer = nn.Linear(example.shape[-1] // 2 + 1, width)
        self.width = width

    def forward(self, inputs: Tensor) -> Tensor:
        """The features of a batch."""
        return self.layer(torch.fft.rfft(inputs).abs() / inputs.shape[-1]).relu()
