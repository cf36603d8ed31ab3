"""Examples held as tensors: what a client trains on and is tested on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor


def gather(values: Tensor, index: Tensor) -> Tensor:
    """Picks rows and keeps images in the memory format they are stored in."""
    if values.ndim == 4 and values.is_contiguous(memory_format=torch.channels_last):
        return values.permute(0, 2, 3, 1).index_select(0, index).permute(0, 3, 1, 2)
    return values.index_select(0, index)


@dataclass(frozen=True)
class Examples:
    """Inputs and, for every task, the targets: row i of each tensor is example i."""

    inputs: Tensor
    targets: dict[str, Tensor]

    def __post_init__(self) -> None:
        for task, target in self.targets.items():
            if target.shape[0] != self.inputs.shape[0]:
                raise ValueError(
                    f"task {task!r} has {len(target)} targets for {len(self.inputs)} inputs"
                )

    def __len__(self) -> int:
        return self.inputs.shape[0]

    def take(self, index: Tensor) -> Examples:
        """The examples at these positions, in this order."""
        return Examples(
            gather(self.inputs, index),
            {task: gather(target, index) for task, target in self.targets.items()},
        )

    def batches(self, size: int) -> Iterator[Examples]:
        """Views of `size` examples each, in order; the last may be smaller."""
        full, rest = divmod(len(self), size)
        return self.split([size] * full + [rest] * bool(rest))

    def split(self, sizes: list[int]) -> Iterator[Examples]:
        """Views of so many examples each, one after the other."""
        targets = (torch.split_with_sizes(target, sizes) for target in self.targets.values())
        inputs = torch.split_with_sizes(self.inputs, sizes)
        for part, *others in zip(inputs, *targets, strict=True):
            yield Examples(part, dict(zip(self.targets, others, strict=True)))

    def rows(self, start: int, length: int) -> Examples:
        """So many examples from `start` on, as views."""
        return Examples(
            self.inputs.narrow(0, start, length),
            {task: target.narrow(0, start, length) for task, target in self.targets.items()},
        )

    def only(self, tasks: Sequence[str]) -> Examples:
        """The same inputs with the targets of some tasks."""
        return Examples(self.inputs, {task: self.targets[task] for task in tasks})

    @staticmethod
    def concatenate(parts: Sequence[Examples]) -> Examples:
        """All examples of several sets, one after the other."""
        return Examples(
            torch.cat([part.inputs for part in parts]),
            {task: torch.cat([part.targets[task] for part in parts]) for task in parts[0].targets},
        )


@dataclass(frozen=True)
class Splits:
    """One client's examples: `train` teaches, `validation` chooses, `test` only reports."""

    train: Examples
    validation: Examples
    test: Examples
    extra: Mapping[str, Examples] = field(default_factory=dict)
    """Further test examples by the metric under which their accuracy is reported."""

    @property
    def parts(self) -> tuple[Examples, ...]:
        """All sets of examples."""
        return self.train, self.validation, self.test, *self.extra.values()

    def map(self, change: Callable[[Examples], Examples]) -> Splits:
        """The same splits with every set of examples changed."""
        extra = {name: change(examples) for name, examples in self.extra.items()}
        return Splits(change(self.train), change(self.validation), change(self.test), extra)

    @staticmethod
    def concatenate(many: Sequence[Splits]) -> Splits:
        """All examples of several clients, who have the same further test sets."""
        columns = zip(*(splits.parts for splits in many), strict=True)
        train, validation, test, *others = map(Examples.concatenate, columns)
        return Splits(train, validation, test, dict(zip(many[0].extra, others, strict=True)))
