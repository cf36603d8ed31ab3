"""The one model in memory that all clients of an architecture share."""

from __future__ import annotations

import torch

from consort.core.known import Form
from consort.core.params import Params
from consort.models.multitask import MultiTaskModel
from consort.training.cohort import can_be_stacked


class Blueprint:
    """The model of an architecture with its initial weights, for all clients of that architecture.

    Args:
        model: The model as it was built.
    """

    def __init__(self, model: MultiTaskModel) -> None:
        self.model = model
        self.params = Params.of(model)
        self.form = Form(self.params)
        self.shapes = self.form.shapes
        self.stackable = can_be_stacked(model)
        self._live = [tensor.detach() for tensor in (*model.parameters(), *model.buffers())]
        self._initial = [tensor.clone() for tensor in self._live]
        self._modes = [(module, module.training) for module in model.modules()]
        self._learning = [(parameter, parameter.requires_grad) for parameter in model.parameters()]

    def fresh(self) -> MultiTaskModel:
        """The model as it was built, whatever its last user did with it.

        Initial weights alone are not enough: evaluation leaves `eval()` mode behind and training
        leaves gradients, so that the next training would differ in a resumed run.
        """
        torch._foreach_copy_(self._live, self._initial)
        for module, training in self._modes:
            if module.training is not training:
                module.training = training
        for parameter, learning in self._learning:
            parameter.grad = None
            if parameter.requires_grad is not learning:
                parameter.requires_grad_(learning)
        return self.model
