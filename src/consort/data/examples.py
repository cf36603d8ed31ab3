"""Examples as tensors: what clients are trained and evaluated on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor


def gather(values: Tensor, index: Tensor) -> Tensor:
    """The rows of `values` at `index`; images keep their memory format."""
    if values.ndim == 4 and values.is_contiguous(memory_format=torch.channels_last):
        return values.permute(0, 2, 3, 1).index_select(0, index).permute(0, 3, 1, 2)
    return values.index_select(0, index)


@dataclass(frozen=True)
class Examples:
    """Inputs with the targets of each task; row i of every tensor belongs to example i.

    Raises:
        ValueError: If a task has more or fewer targets than there are inputs.

    Examples:
        >>> import torch
        >>> from consort import Examples
        >>> examples = Examples(torch.ones(3, 1), {"odd": torch.tensor([1, 0, 0])})
        >>> len(examples)
        3
        >>> examples.take(torch.tensor([2, 0])).targets["odd"]
        tensor([0, 1])
    """

    inputs: Tensor
    """The inputs."""
    targets: dict[str, Tensor]
    """The targets of each task."""

    def __post_init__(self) -> None:
        for task, target in self.targets.items():
            if target.shape[0] != self.inputs.shape[0]:
                raise ValueError(
                    f"task {task!r} has {len(target)} targets for {len(self.inputs)} inputs"
                )

    def __len__(self) -> int:
        return self.inputs.shape[0]

    def take(self, index: Tensor) -> Examples:
        """The examples at some positions.

        Args:
            index: The positions, in the order of the result.
        """
        return Examples(
            gather(self.inputs, index),
            {task: gather(target, index) for task, target in self.targets.items()},
        )

    def batches(self, size: int) -> Iterator[Examples]:
        """Batches of examples in order, as views.

        Args:
            size: The number of examples per batch; the last one may be smaller.
        """
        full, rest = divmod(len(self), size)
        return self.split([size] * full + [rest] * bool(rest))

    def split(self, sizes: list[int]) -> Iterator[Examples]:
        """Consecutive parts, as views.

        Args:
            sizes: The number of examples of each part; their sum is the number of all examples.
        """
        targets = (torch.split_with_sizes(target, sizes) for target in self.targets.values())
        inputs = torch.split_with_sizes(self.inputs, sizes)
        for part, *others in zip(inputs, *targets, strict=True):
            yield Examples(part, dict(zip(self.targets, others, strict=True)))

    def rows(self, start: int, length: int) -> Examples:
        """Consecutive examples, as views.

        Args:
            start: The position of the first example.
            length: The number of examples.
        """
        return Examples(
            self.inputs.narrow(0, start, length),
            {task: target.narrow(0, start, length) for task, target in self.targets.items()},
        )

    def only(self, tasks: Sequence[str]) -> Examples:
        """The same inputs with the targets of some tasks.

        Args:
            tasks: The names of the tasks.
        """
        return Examples(self.inputs, {task: self.targets[task] for task in tasks})

    @staticmethod
    def concatenate(parts: Sequence[Examples]) -> Examples:
        """All examples of several sets, one set after the other.

        Args:
            parts: Sets with the same tasks.
        """
        return Examples(
            torch.cat([part.inputs for part in parts]),
            {task: torch.cat([part.targets[task] for part in parts]) for task in parts[0].targets},
        )


@dataclass(frozen=True)
class Splits:
    """The examples of one client, split into training, validation and test data.

    Examples:
        >>> import torch
        >>> from consort import Examples, Splits
        >>> examples = Examples(torch.eye(6), {"place": torch.arange(6)})
        >>> train, validation, test = examples.split([4, 1, 1])
        >>> splits = Splits(train, validation, test)
        >>> [len(part) for part in splits.parts]
        [4, 1, 1]
    """

    train: Examples
    """What the model is trained on."""
    validation: Examples
    """What choices, such as the best round, are based on."""
    test: Examples
    """What is only reported."""
    extra: Mapping[str, Examples] = field(default_factory=dict)
    """Further test sets by the name of the metric under which their accuracy is reported."""

    @property
    def parts(self) -> tuple[Examples, ...]:
        """All sets of examples."""
        return self.train, self.validation, self.test, *self.extra.values()

    def map(self, change: Callable[[Examples], Examples]) -> Splits:
        """The same splits with every set of examples changed.

        Args:
            change: Makes a new set from a set of examples.
        """
        extra = {name: change(examples) for name, examples in self.extra.items()}
        return Splits(change(self.train), change(self.validation), change(self.test), extra)

    @staticmethod
    def concatenate(many: Sequence[Splits]) -> Splits:
        """All examples of several clients, split in the same way.

        Args:
            many: The splits of each client; all have the same further test sets.
        """
        columns = zip(*(splits.parts for splits in many), strict=True)
        train, validation, test, *others = map(Examples.concatenate, columns)
        return Splits(train, validation, test, dict(zip(many[0].extra, others, strict=True)))
