"""Named tensors with the arithmetic of a vector space: the weights of models as they are sent."""

from __future__ import annotations

import math
from collections.abc import (
    Callable,
    ItemsView,
    Iterable,
    Iterator,
    KeysView,
    Mapping,
    Sequence,
    ValuesView,
)
from typing import Any

import torch
from torch import Tensor, nn

from consort.errors import NoReplies, UsageError

BUFFERS = "buffers"
_CHUNK = 1 << 14


def slots(module: nn.Module) -> Mapping[str, Tensor]:
    """The live tensors of a module that are sent and averaged, by name.

    Args:
        module: A module. If it has a method `slots`, as `MultiTaskModel` has, that method decides;
            otherwise these are all parameters and all running statistics.
    """
    own = getattr(module, "slots", None)
    return own() if own else {**dict(module.named_parameters()), **statistics(module)}


def everything(module: nn.Module) -> dict[str, Tensor]:
    """The same as `slots`, with the running statistics of `module` even if they are not sent."""
    return {**slots(module), **statistics(module)}


def statistics(module: nn.Module) -> dict[str, Tensor]:
    """The running statistics of a module, each named `buffers.<name>`.

    Args:
        module: A module; counters and other integer buffers are ignored.
    """
    return {
        f"{BUFFERS}.{name}": buffer
        for name, buffer in module.named_buffers()
        if buffer.is_floating_point()
    }


def has_role(name: str, role: str) -> bool:
    """Whether a parameter belongs to a part of the model.

    Args:
        name: The name of the parameter. A buffer belongs to `buffers` and to its part of the model.
        role: The part, such as `encoder` or `heads.digits`.
    """
    whole = name.removeprefix(f"{BUFFERS}.")
    return f"{name}.".startswith(f"{role}.") or f"{whole}.".startswith(f"{role}.")


class Params(Mapping[str, Tensor]):
    """An immutable mapping from names to tensors, with the arithmetic of a vector space.

    `+`, `-`, `*` and `/` take a number or other `Params`, with which they are elementwise; so are
    `abs`, `sqrt`, `sign` and `map`.

    Args:
        tensors: The tensors by name.

    Examples:
        >>> import torch
        >>> from consort import Params
        >>> a = Params({"encoder.w": torch.tensor([1.0, 2.0]), "heads.t.b": torch.tensor([3.0])})
        >>> (a + a * 0.5).norm()
        5.612486080160912
        >>> list(a.only("encoder"))
        ['encoder.w']
        >>> (a * a / (abs(a) + 1.0)).sqrt()["heads.t.b"]
        tensor([1.5000])
    """

    __slots__ = ("_tensors",)

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._tensors = dict(tensors)

    @classmethod
    def of(cls, module: nn.Module, whole: bool = False) -> Params:
        """Copies the parameters and buffers of a module that are sent: see `slots`.

        The copies are contiguous in memory, whatever the memory format of the module, so that sums
        over a model have the same bits before and after it was sent.

        Args:
            module: The module to copy from.
            whole: Whether running statistics are copied even if they are not sent.
        """
        plain = torch.contiguous_format
        live = everything(module) if whole else slots(module)
        return cls({name: t.detach().clone(memory_format=plain) for name, t in live.items()})

    def load_into(self, module: nn.Module, whole: bool = False) -> None:
        """Copies the tensors into a module; its other tensors are unchanged.

        Args:
            module: The module to change.
            whole: Whether running statistics may be among the tensors even if they are not sent.

        Raises:
            UsageError: If the module lacks one of the names, or its tensor has another shape.
        """
        live = everything(module) if whole else slots(module)
        targets = []
        for name, source in self._tensors.items():
            target = live.get(name)
            if target is None:
                raise UsageError(f"the model has no parameter {name!r}: architectures differ")
            if source.shape != target.shape:
                raise UsageError(
                    f"parameter {name!r} has shape {tuple(source.shape)} where the model has "
                    f"{tuple(target.shape)}: architectures differ"
                )
            targets.append(target)
        with torch.no_grad():
            _each(torch._foreach_copy_, targets, self._values())

    def __getitem__(self, name: str) -> Tensor:
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    # The views of `Mapping` would look up every value by its name.
    def keys(self) -> KeysView[str]:
        """The names."""
        return self._tensors.keys()

    def values(self) -> ValuesView[Tensor]:
        """The tensors."""
        return self._tensors.values()

    def items(self) -> ItemsView[str, Tensor]:
        """Pairs of name and tensor."""
        return self._tensors.items()

    def __repr__(self) -> str:
        return f"Params({len(self)} tensors, {self.size:,} numbers)"

    @property
    def size(self) -> int:
        """The number of values in all tensors."""
        return sum(tensor.numel() for tensor in self._tensors.values())

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of every tensor, by name."""
        return {name: tuple(tensor.shape) for name, tensor in self._tensors.items()}

    def only(self, *roles: str) -> Params:
        """The parameters with at least one of these roles.

        Args:
            *roles: Parts of the model, such as `encoder` or `heads.digits`.
        """
        return Params({n: t for n, t in self.items() if any(has_role(n, r) for r in roles)})

    def without(self, *roles: str) -> Params:
        """The parameters with none of these roles.

        Args:
            *roles: Parts of the model, such as `encoder` or `heads.digits`.
        """
        return Params({n: t for n, t in self.items() if not any(has_role(n, r) for r in roles)})

    def __or__(self, other: Mapping[str, Tensor]) -> Params:
        """The union; the tensors of `other` win where both have a name."""
        return Params({**self._tensors, **other})

    # A number or `Params` of the same names; either way the operation is elementwise.
    def __add__(self, other: Params | float) -> Params:
        return self._with(_each(torch._foreach_add, self._values(), self._matching(other)))

    def __sub__(self, other: Params | float) -> Params:
        return self._with(_each(torch._foreach_sub, self._values(), self._matching(other)))

    def __mul__(self, factor: Params | float) -> Params:
        return self._with(_each(torch._foreach_mul, self._values(), self._matching(factor)))

    __rmul__ = __mul__

    def __truediv__(self, divisor: Params | float) -> Params:
        if isinstance(divisor, Params):
            return self._with(_each(torch._foreach_div, self._values(), divisor._like(self)))
        return self * (1.0 / divisor)

    def __neg__(self) -> Params:
        return self._with(_each(torch._foreach_neg, self._values()))

    def __abs__(self) -> Params:
        return self._with(_each(torch._foreach_abs, self._values()))

    def abs(self) -> Params:
        """The absolute value of every number; `abs(params)` is the same."""
        return abs(self)

    def sqrt(self) -> Params:
        """The square root of every number; NaN for negative ones."""
        return self._with(_each(torch._foreach_sqrt, self._values()))

    def sign(self) -> Params:
        """The sign of every number: -1, 0 or 1."""
        return self._with(_each(torch._foreach_sign, self._values()))

    def map(self, change: Callable[[Tensor], Tensor]) -> Params:
        """Applies a function to every tensor.

        Args:
            change: Makes a new tensor of a tensor, which it must not change in place.
        """
        return self._with(change(tensor) for tensor in self._tensors.values())

    def zeros(self) -> Params:
        """Zeros with the same names and shapes."""
        return Params({name: torch.zeros_like(tensor) for name, tensor in self._tensors.items()})

    def dot(self, other: Params) -> float:
        """The inner product: short sums in fp32, added up in fp64 (exact to about 1e-6).

        Args:
            other: `Params` of the same names and shapes.

        Raises:
            UsageError: If the names or shapes differ.
        """
        return math.fsum(
            float(torch.dot(a, b))
            for left, right in zip(self._values(), other._like(self), strict=True)
            for a, b in zip(_pieces(left), _pieces(right), strict=True)
        )

    def norm(self) -> float:
        """The Euclidean norm."""
        return math.sqrt(self.dot(self))

    def equals(self, other: Params) -> bool:
        """Whether names, shapes and all values are equal.

        Args:
            other: What to compare with.
        """
        return self.keys() == other.keys() and all(
            torch.equal(tensor, other[name]) for name, tensor in self.items()
        )

    def _matching(self, other: Params | float) -> list[Tensor] | float:
        return other._like(self) if isinstance(other, Params) else other

    def _values(self) -> list[Tensor]:
        return list(self._tensors.values())

    def _like(self, other: Params) -> list[Tensor]:
        """My tensors in the order of another's names, which must be the same."""
        if self._tensors.keys() != other._tensors.keys():
            odd = sorted(self._tensors.keys() ^ other._tensors.keys())
            raise UsageError(f"cannot combine models: only one of them has {odd[0]!r}")
        for name, tensor in other._tensors.items():
            if self._tensors[name].shape != tensor.shape:
                raise UsageError(f"cannot combine models: {name!r} has different shapes in them")
        return [self._tensors[name] for name in other._tensors]

    def _with(self, tensors: Iterable[Tensor]) -> Params:
        return Params(dict(zip(self._tensors, tensors, strict=True)))


def _each(
    operation: Callable[..., Any], tensors: list[Tensor], *others: Any, **options: Any
) -> Iterable[Tensor]:
    """An operation on lists of tensors; torch refuses empty lists."""
    return operation(tensors, *others, **options) or () if tensors else ()


def _pieces(tensor: Tensor) -> tuple[Tensor, ...]:
    return torch.split(tensor.reshape(-1), _CHUNK)


def mean(items: Sequence[Params], weights: Sequence[float] | None = None) -> Params:
    """The weighted mean.

    Args:
        items: `Params` of the same names and shapes, in client order: the sum is taken in this
            order.
        weights: The weight of each item; equal weights if None.

    Raises:
        NoReplies: If there are no items, or all weights are 0.
        UsageError: If the sum of the weights is not positive, or the items differ in names or
            shapes.
    """
    if not items:
        raise NoReplies("there is nothing to average")
    weights = [1.0] * len(items) if weights is None else weights
    total = float(sum(weights))
    if not any(weights):
        raise NoReplies("there is nothing to average: all weights are 0")
    if not 0 < total < math.inf:
        raise UsageError(f"the weights of a mean must have a positive sum, found {total}")
    return weighted_sum(items, [weight / total for weight in weights])


def weighted_sum(items: Sequence[Params], weights: Sequence[float]) -> Params:
    """The sum of the items times their weights.

    Args:
        items: `Params` of the same names and shapes, in client order: the sum is taken in this
            order.
        weights: The weight of each item.

    Raises:
        UsageError: If the items differ in names or shapes.
    """
    first, *rest = items
    sums = list(_each(torch._foreach_mul, first._values(), weights[0]))
    for item, weight in zip(rest, weights[1:], strict=True):
        _each(torch._foreach_add_, sums, item._like(first), alpha=weight)
    return first._with(sums)
