"""`MultiTaskModel`: one encoder, and a decoder and a head for every task."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Literal, Self

from torch import Tensor, nn

from consort.core.inputs import Inputs
from consort.core.params import statistics

BatchNormPolicy = Literal["average", "local", "recompute"]
"""What happens to the running statistics of BatchNorm: see `MultiTaskModel`."""


class MultiTaskModel(nn.Module):
    """One encoder with a head, and optionally a decoder, per task.

    The name of every parameter begins with its role: `encoder.*` is shared by the tasks of a
    client, `decoders.<task>.*` and `heads.<task>.*` belong to one task. A task without a decoder
    passes the encoder's features directly to its head.

    `companion` is a second complete model that a client may train beside this one; its parameters
    are named `companion.*`.

    Args:
        encoder: The module that all tasks share.
        heads: The output head of each task.
        decoders: The modules between encoder and head, for the tasks that have one.
        batchnorm: What happens to running statistics: they are sent and averaged like parameters
            (`average`), stay with each client (`local`), or are recomputed from the client's
            training data before each evaluation (`recompute`).
        channels_last: Whether the modules compute with images whose channels are stored last.

    Examples:
        >>> import torch
        >>> from torch import nn
        >>> from consort import MultiTaskModel
        >>> heads = {"sign": nn.Linear(3, 2), "size": nn.Linear(3, 1)}
        >>> model = MultiTaskModel(nn.Linear(4, 3), heads)
        >>> {task: tuple(output.shape) for task, output in model(torch.zeros(5, 4)).items()}
        {'sign': (5, 2), 'size': (5, 1)}
        >>> list(model.slots())[:3]
        ['encoder.weight', 'encoder.bias', 'heads.sign.weight']
    """

    def __init__(
        self,
        encoder: nn.Module,
        heads: Mapping[str, nn.Module],
        decoders: Mapping[str, nn.Module] | None = None,
        batchnorm: BatchNormPolicy = "average",
        channels_last: bool = True,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoders = nn.ModuleDict(decoders or {})
        self.heads = nn.ModuleDict(heads)
        self.batchnorm: BatchNormPolicy = batchnorm
        self.channels_last = channels_last
        self.companion: MultiTaskModel | None = None
        self.original_names: dict[str, str] = {}
        """If this was a network before: how names begin here, and how they began there."""
        self._slots: dict[str, Tensor] | None = None
        self.paths = {
            task: (*([self.decoders[task]] if task in self.decoders else []), head)
            for task, head in self.heads.items()
        }

    def slots(self) -> dict[str, Tensor]:
        """The live tensors that are sent and averaged: see `consort.core.params.slots`.

        Parameters that are frozen, without gradients, when this is first called are not among them.
        """
        if self._slots is None:
            moving = ((n, p) for n, p in self.named_parameters() if p.requires_grad)
            self._slots = dict(moving)
            if self.batchnorm == "average":
                self._slots |= statistics(self)
        return self._slots

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        self._slots = None  # a change of dtype or memory format may replace buffers
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return self

    def forward(self, inputs: Inputs, tasks: Iterable[str] | None = None) -> dict[str, Tensor]:
        """Computes the outputs of a batch.

        Args:
            inputs: A batch of prepared inputs.
            tasks: The tasks to compute; all by default.

        Returns:
            The output of each task.
        """
        features = self.encoder(inputs)
        return {task: self.output(task, features) for task in tasks or self.heads}

    def output(self, task: str, features: Tensor) -> Tensor:
        """Computes the output of one task.

        Args:
            task: The name of the task.
            features: The encoder's features of a batch.

        Returns:
            The output of the task's decoder, if it has one, and head.
        """
        for module in self.paths[task]:
            features = module(features)
        return features

    def frozen_outputs(self) -> dict[str, nn.Module]:
        """For each task a frozen copy of the modules that follow the encoder."""
        return {
            task: copy.deepcopy(nn.Sequential(*path)).requires_grad_(False)
            for task, path in self.paths.items()
        }
