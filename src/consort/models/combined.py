"""Several models as one: each of them answers some of the tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor, nn

from consort.models.multitask import MultiTaskModel


def combined(models: Mapping[str, MultiTaskModel]) -> MultiTaskModel:
    """Answers every task as the model that is named for it does.

    It consists of their own parts, and switches their modes: whoever trains on with one of them
    gives a copy.
    """
    different = list(dict.fromkeys(models.values()))
    if len(different) == 1:
        return different[0]
    heads = {
        task: nn.Sequential(Features(different.index(model)), *model.paths[task])
        for task, model in models.items()
    }
    encoder = Encoders(model.encoder for model in different)
    return MultiTaskModel(encoder, heads, batchnorm=different[0].batchnorm)


class Encoders(nn.Module):
    """The features of several encoders."""

    def __init__(self, encoders: Iterable[nn.Module]) -> None:
        super().__init__()
        self.encoders = nn.ModuleList(encoders)

    def forward(self, inputs: Tensor) -> tuple[Any, ...]:
        """What each of them makes of a batch."""
        return tuple(encoder(inputs) for encoder in self.encoders)


class Features(nn.Module):
    """Of the features of several encoders, those of one."""

    def __init__(self, place: int) -> None:
        super().__init__()
        self.place = place

    def forward(self, features: tuple[Any, ...]) -> Any:
        """The part of them that one decoder or head reads."""
        return features[self.place]
