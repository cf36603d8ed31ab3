"""One encoder, and for every task a decoder and a head: the shape of all models here."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Literal, Self

from torch import Tensor, nn

from consort.core.params import statistics

BatchNormPolicy = Literal["average", "local", "recompute"]


class MultiTaskModel(nn.Module):
    """Every parameter has a role, which is how its name begins.

    `encoder.*` is shared by the tasks of a client, `decoders.<task>.*` and
    `heads.<task>.*` belong to one task. Decoders are optional: a task without one feeds
    the features to its head.

    `batchnorm` says what becomes of running statistics: they travel and are averaged like
    parameters (`average`), stay with each client (`local`), or are computed anew from
    the client's training data before each evaluation (`recompute`).

    `companion` is another whole model that a client may train beside this one; its parameters
    are called `companion.*`.
    """

    def __init__(
        self,
        encoder: nn.Module,
        heads: Mapping[str, nn.Module],
        decoders: Mapping[str, nn.Module] | None = None,
        batchnorm: BatchNormPolicy = "average",
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoders = nn.ModuleDict(decoders or {})
        self.heads = nn.ModuleDict(heads)
        self.batchnorm: BatchNormPolicy = batchnorm
        self.companion: MultiTaskModel | None = None
        self._slots: dict[str, Tensor] | None = None
        self.paths = {
            task: (*([self.decoders[task]] if task in self.decoders else []), head)
            for task, head in self.heads.items()
        }

    def slots(self) -> dict[str, Tensor]:
        """The live tensors that take part in federation: see `consort.core.params.slots`."""
        if self._slots is None:
            self._slots = dict(self.named_parameters())
            if self.batchnorm == "average":
                self._slots |= statistics(self)
        return self._slots

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        self._slots = None  # a change of type or layout may replace buffers
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return self

    def forward(self, inputs: Tensor, tasks: Iterable[str] | None = None) -> dict[str, Tensor]:
        """The output of every task (or of those named) for a batch of inputs."""
        features = self.encoder(inputs)
        return {task: self.output(task, features) for task in tasks or self.heads}

    def output(self, task: str, features: Tensor) -> Tensor:
        """One task's output from the encoder's features."""
        for module in self.paths[task]:
            features = module(features)
        return features

    def frozen_outputs(self) -> dict[str, nn.Module]:
        """A copy of what follows the encoder, by task, that stays as it is now."""
        return {
            task: copy.deepcopy(nn.Sequential(*path)).requires_grad_(False)
            for task, path in self.paths.items()
        }
