"""Fully connected layers, for inputs of any shape."""

from __future__ import annotations

from itertools import pairwise

from pydantic import PositiveInt
from torch import Tensor, nn

from consort.models.inputs import number_count


class Mlp(nn.Module):
    """Fully connected layers with ReLU; with `hidden = []`, softmax regression.

    Without hidden layers the features are the flattened input itself.

    Args:
        inputs: The number of values of an example.
        hidden: The widths of the hidden layers.
    """

    measure = staticmethod(number_count)

    def __init__(self, inputs: int, hidden: tuple[PositiveInt, ...] = (64,)) -> None:
        super().__init__()
        widths = (inputs, *hidden)
        self.layers = nn.ModuleList(nn.Linear(*pair) for pair in pairwise(widths))
        self.width = widths[-1]

    def forward(self, inputs: Tensor) -> Tensor:
        """The features of a batch of `inputs`, which may have any shape."""
        features = inputs.flatten(1) if inputs.ndim > 2 else inputs
        for layer in self.layers:
            features = layer(features).relu()
        return features
