"""Examples: what clients are trained and evaluated on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from consort.core.inputs import Inputs, each, tensors_of
from consort.data.unread import Unread
from consort.errors import UsageError


def gather(values: Tensor, index: Tensor) -> Tensor:
    """The rows of `values` at `index`; images keep their memory format."""
    if values.ndim == 4 and values.is_contiguous(memory_format=torch.channels_last):
        return values.permute(0, 2, 3, 1).index_select(0, index).permute(0, 3, 1, 2)
    return values.index_select(0, index)


@dataclass(frozen=True)
class Examples:
    """Inputs with the targets of each task; row i of every tensor belongs to example i.

    Raises:
        UsageError: If a task has more or fewer targets than there are inputs.

    Examples:
        >>> import torch
        >>> from consort import Examples
        >>> examples = Examples(torch.ones(3, 1), {"odd": torch.tensor([1, 0, 0])})
        >>> len(examples)
        3
        >>> examples.take(torch.tensor([2, 0])).targets["odd"]
        tensor([0, 1])
        >>> tokens = {"ids": torch.ones(3, 7).long(), "mask": torch.ones(3, 7)}
        >>> Examples(tokens, {"odd": torch.tensor([1, 0, 0])}).rows(0, 2).inputs["ids"].shape
        torch.Size([2, 7])
    """

    inputs: Inputs | Unread
    """The inputs: a tensor, several tensors by name, or what is read when batches are taken."""
    targets: dict[str, Tensor]
    """The targets of each task."""

    def __post_init__(self) -> None:
        count = len(self)
        for task, target in self.targets.items():
            if target.shape[0] != count:
                raise UsageError(
                    f"task {task!r} has {len(target)} targets for {count} inputs: give every input "
                    "one target"
                )
        if isinstance(self.inputs, dict):
            for name, tensor in self.inputs.items():
                if len(tensor) != count:
                    raise UsageError(
                        f"input {name!r} has {len(tensor)} rows, and the first input has {count}: "
                        "give every example one row of each"
                    )

    @staticmethod
    def of(data: Any, targets: str | Sequence[str] = ()) -> Examples:
        """Examples from almost any data.

        Args:
            data: `Examples`; a pair of inputs and targets, as tensors or arrays; a pandas or polars
                frame, a Hugging Face data set, or a dict of columns; a torch `Dataset` whose items
                are such pairs or dicts; or the path of an .npz, .safetensors or .pt file of columns
                or of a folder with one folder of images per class.
            targets: The columns that are targets; by default `target`, `label` or `labels`. Single
                targets are named `target`, until a client's task gives them its name.

        Raises:
            UsageError: If the data are of another kind, or have no targets.
        """
        from consort.data.sources import examples_of

        return examples_of(data, targets)

    def __len__(self) -> int:
        if isinstance(self.inputs, Tensor):
            return self.inputs.shape[0]
        return (
            len(next(iter(self.inputs.values())))
            if isinstance(self.inputs, dict)
            else len(self.inputs)
        )

    @property
    def loaded(self) -> Inputs:
        """The inputs, read now if they were not."""
        return self.inputs.read() if isinstance(self.inputs, Unread) else self.inputs

    @property
    def tensor(self) -> Tensor:
        """The inputs as one tensor.

        Raises:
            UsageError: If there are several tensors by name.
        """
        if isinstance(self.inputs, Tensor):
            return self.inputs
        read = self.loaded
        if isinstance(read, Tensor):
            return read
        raise UsageError(
            f"this needs inputs of one tensor, but the examples have {', '.join(read)}: choose "
            "another algorithm, or put them into one tensor"
        )

    @property
    def example(self) -> Inputs:
        """The inputs of the first example."""
        return each(self.rows(0, 1).loaded, lambda tensor: tensor[0])

    @property
    def size(self) -> int:
        """The number of values of all inputs; those that are not read yet count as none."""
        if isinstance(self.inputs, Tensor):
            return self.inputs.numel()
        return sum(tensor.numel() for tensor in self._in_memory())

    @property
    def nbytes(self) -> int:
        """The memory of all tensors; inputs that are not read yet count as none."""
        return sum(tensor.nbytes for tensor in (*self._in_memory(), *self.targets.values()))

    def _in_memory(self) -> list[Tensor]:
        return [] if isinstance(self.inputs, Unread) else tensors_of(self.inputs)

    def changed(self, change: Callable[[Any], Any]) -> Examples:
        """The same examples with changed inputs; those that are not read yet are changed later.

        Args:
            change: Makes new inputs from inputs.
        """
        if isinstance(self.inputs, Unread):
            return Examples(self.inputs.changed(change), self.targets)
        return Examples(change(self.inputs), self.targets)

    def take(self, index: Tensor) -> Examples:
        """The examples at some positions.

        Args:
            index: The positions, in the order of the result.
        """
        return Examples(
            gather(self.inputs, index)
            if isinstance(self.inputs, Tensor)
            else self._mapped(lambda values: gather(values, index), lambda some: some.take(index)),
            {task: gather(target, index) for task, target in self.targets.items()},
        )

    def _mapped(
        self, change: Callable[[Tensor], Tensor], later: Callable[[Unread], Unread]
    ) -> Inputs | Unread:
        return later(self.inputs) if isinstance(self.inputs, Unread) else each(self.inputs, change)

    def batches(self, size: int) -> Iterator[Examples]:
        """Batches of examples in order, as views, or read now.

        Args:
            size: The number of examples per batch; the last one may be smaller.
        """
        full, rest = divmod(len(self), size)
        return self.split([size] * full + [rest] * bool(rest))

    def split(self, sizes: list[int]) -> Iterator[Examples]:
        """Consecutive parts, as views, or read now.

        Args:
            sizes: The number of examples of each part; their sum is the number of all examples.
        """
        targets = (torch.split_with_sizes(target, sizes) for target in self.targets.values())
        for part, *others in zip(self._input_parts(sizes), *targets, strict=True):
            yield Examples(part, dict(zip(self.targets, others, strict=True)))

    def _input_parts(self, sizes: list[int]) -> Iterator[Inputs] | Sequence[Inputs]:
        if isinstance(self.inputs, Tensor):
            return torch.split_with_sizes(self.inputs, sizes)
        if isinstance(self.inputs, Unread):
            return self.inputs.split(sizes)
        columns = (torch.split_with_sizes(tensor, sizes) for tensor in self.inputs.values())
        names = list(self.inputs)
        return (dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True))

    def rows(self, start: int, length: int) -> Examples:
        """Consecutive examples, as views.

        Args:
            start: The position of the first example.
            length: The number of examples.
        """
        return Examples(
            self._mapped(
                lambda values: values.narrow(0, start, length),
                lambda some: some.take(torch.arange(start, start + length)),
            ),
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
            _joined([part.inputs for part in parts]),
            {task: torch.cat([part.targets[task] for part in parts]) for task in parts[0].targets},
        )


def _joined(parts: Sequence[Inputs | Unread]) -> Inputs | Unread:
    first = parts[0]
    if any(isinstance(part, Unread) for part in parts):
        return Unread.joined(parts)
    if isinstance(first, dict):
        return {name: torch.cat([part[name] for part in parts]) for name in first}  # type: ignore[index]
    return torch.cat(parts)  # type: ignore[arg-type]


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

    @staticmethod
    def of(data: Any, tasks: Sequence[str] = (), seed: int = 0) -> Splits:
        """Splits from almost any data.

        Args:
            data: `Splits`; a tuple of training, validation and test data, or a dict of these, each
                as `Examples.of` takes them; or all data, of which 15 % each become validation and
                test data, stratified by label.
            tasks: The names of the tasks, which give their names to targets.
            seed: The seed of the division of all data.

        Raises:
            UsageError: If the data are of another kind, or a task has no targets.
        """
        from consort.data.division import splits_of

        return splits_of(data, tasks, seed)

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
