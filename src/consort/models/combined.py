"""Several models combined into one, in which each of them handles some of the tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor, nn

from consort.models.multitask import MultiTaskModel


def combined(models: Mapping[str, MultiTaskModel]) -> MultiTaskModel:
    """Builds a model that answers each task with the model given for that task.

    The result shares the modules of the given models, including their train or eval mode: pass
    copies of models that are trained further.

    Args:
        models: For each task the model that answers it.

    Returns:
        One model with all tasks; the given model itself if it is the same for every task.
    """
    different = list(dict.fromkeys(models.values()))
    if len(different) == 1:
        return different[0]
    heads = {
        task: nn.Sequential(ChosenFeatures(different.index(model)), *model.paths[task])
        for task, model in models.items()
    }
    encoder = Encoders(model.encoder for model in different)
    return MultiTaskModel(encoder, heads, batchnorm=different[0].batchnorm)


class Encoders(nn.Module):
    """Runs several encoders on the same inputs.

    Args:
        encoders: The encoders, in the order of their outputs.
    """

    def __init__(self, encoders: Iterable[nn.Module]) -> None:
        super().__init__()
        self.encoders = nn.ModuleList(encoders)

    def forward(self, inputs: Tensor) -> tuple[Any, ...]:
        """The features that each encoder computes from a batch of `inputs`."""
        return tuple(encoder(inputs) for encoder in self.encoders)


class ChosenFeatures(nn.Module):
    """Selects the features of one of several encoders.

    Args:
        place: The position of the encoder.
    """

    def __init__(self, place: int) -> None:
        super().__init__()
        self.place = place

    def forward(self, features: tuple[Any, ...]) -> Any:
        """The entry of `features` at this position."""
        return features[self.place]
