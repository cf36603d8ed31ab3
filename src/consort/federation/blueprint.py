"""One model in memory for all clients of an architecture."""

from __future__ import annotations

import torch

from consort.core.params import Params
from consort.models.multitask import MultiTaskModel
from consort.training.cohort import can_be_stacked


class Blueprint:
    """One model in memory for all clients of an architecture, and the weights it starts with."""

    def __init__(self, model: MultiTaskModel) -> None:
        self.model = model
        self.params = Params.of(model)
        self.shapes = self.params.shapes
        self.stackable = can_be_stacked(model)
        self._live = [tensor.detach() for tensor in (*model.parameters(), *model.buffers())]
        self._initial = [tensor.clone() for tensor in self._live]

    def fresh(self) -> MultiTaskModel:
        """The model with its initial weights, whoever used it before."""
        torch._foreach_copy_(self._live, self._initial)
        return self.model
