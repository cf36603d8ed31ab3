"""What a server knows about a client: the model, tasks and data that its answers must match."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from torch import Tensor, dtype

from consort.core.params import Params
from consort.errors import Refused

Kind = tuple[tuple[int, ...], dtype]
"""The shape and type of a tensor."""


class ModelPart:
    """The names, shapes and types of some parameters.

    Args:
        params: The parameters.
    """

    def __init__(self, params: Params) -> None:
        self.kinds: dict[str, Kind] = {n: (tuple(t.shape), t.dtype) for n, t in params.items()}
        self.names = tuple(self.kinds)
        self.data = sum(tensor.nbytes for tensor in params.values())
        """The bytes of the parameters."""
        self.text = sum(len(name) for name in self.names)
        """The characters of their names."""

    def check(self, params: object, where: str) -> None:
        """Checks that these are exactly the parameters of this part.

        Args:
            params: What was sent.
            where: The entry of the answer that they were sent in.

        Raises:
            Refused: If they are not `Params`, or differ in a name, a shape or a type.
        """
        if not isinstance(params, Params):
            raise Refused(f"{where} is not `Params`")
        if tuple(params) != self.names:
            self._check_names(params, where)
        for name, tensor in params.items():
            check_kind(f"{where}, parameter {name!r},", tensor, *self.kinds[name])

    def _check_names(self, params: Params, where: str) -> None:
        for name in self.names:
            if name not in params:
                raise Refused(f"{where} lacks the parameter {name!r}")
        for name in params:
            if name not in self.kinds:
                raise Refused(f"{where} has the additional parameter {str(name)[:100]!r}")


def check_kind(where: str, tensor: object, shape: tuple[int, ...], kind: dtype) -> None:
    """Checks the shape and the type of a tensor.

    Args:
        where: What it is, for the message.
        tensor: What was sent.
        shape: The shape that it must have.
        kind: The type that it must have.

    Raises:
        Refused: If it is not such a tensor.
    """
    if not isinstance(tensor, Tensor):
        raise Refused(f"{where} is not a tensor")
    if tensor.shape != shape:
        raise Refused(f"{where} has shape {tuple(tensor.shape)}, expected {shape}")
    if tensor.dtype is not kind:
        raise Refused(f"{where} has type {tensor.dtype}, expected {kind}")


class Form:
    """A model as the server knows it; parts of it are looked up once for all clients that have it.

    Args:
        params: The initial weights.
    """

    def __init__(self, params: Params) -> None:
        self.params = params
        self.whole = ModelPart(params)
        self.shapes = params.shapes
        self._parts: dict[object, ModelPart] = {}

    def part(self, only: tuple[str, ...], without: tuple[str, ...]) -> ModelPart:
        """The parameters of some roles.

        Args:
            only: The roles; all if empty.
            without: The roles that are left out.
        """
        key = only, without
        if key not in self._parts:
            chosen = self.params.only(*only) if only else self.params
            self._parts[key] = ModelPart(chosen.without(*without) if without else chosen)
        return self._parts[key]

    def matrices(self, task: str) -> Iterator[tuple[int, int]]:
        """The shapes of the weight matrices of a task's head, from the features to the outputs.

        Args:
            task: The name of the task.
        """
        for shape, _ in self.part((f"heads.{task}",), ()).kinds.values():
            if len(shape) == 2:
                yield shape[0], shape[1]


@dataclass(frozen=True)
class Known:
    """What the server knows about a client before it answers."""

    form: Form
    """Its model."""
    tasks: tuple[str, ...]
    """The names of its tasks."""
    count: Callable[[], int]
    """Finds out how many training examples it has, or has announced."""
    measured: tuple[str, ...] = ()
    """What else it measures, under names like those of tasks."""
    features: int | None = None
    """The length of its features, if known."""
    task: str = field(default="", compare=False)
    """The task that an entry of an answer belongs to."""

    @cached_property
    def examples(self) -> int:
        """The number of its training examples."""
        return self.count()
