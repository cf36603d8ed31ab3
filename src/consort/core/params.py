"""Named tensors with the arithmetic of a vector space: what models are when they travel."""

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
    """The live tensors of a module that take part in federation, by name.

    A module may answer this itself, as `MultiTaskModel` does; of others, all parameters and
    all running statistics take part.
    """
    own = getattr(module, "slots", None)
    return own() if own else {**dict(module.named_parameters()), **statistics(module)}


def everything(module: nn.Module) -> dict[str, Tensor]:
    """The same, and the running statistics also where they do not take part."""
    return {**slots(module), **statistics(module)}


def statistics(module: nn.Module) -> dict[str, Tensor]:
    """The running statistics of a module, each under `buffers.<name>`.

    Counters and other integer buffers always stay where they are.
    """
    return {
        f"{BUFFERS}.{name}": buffer
        for name, buffer in module.named_buffers()
        if buffer.is_floating_point()
    }


def has_role(name: str, role: str) -> bool:
    """Whether a name belongs to a part of the model, such as `encoder` or `heads.digits`.

    A buffer belongs to `buffers` and to the part of the model it sits in.
    """
    whole = name.removeprefix(f"{BUFFERS}.")
    return f"{name}.".startswith(f"{role}.") or f"{whole}.".startswith(f"{role}.")


class Params(Mapping[str, Tensor]):
    """An immutable mapping of names to tensors that can be added, scaled and compared.

    >>> a = Params({"encoder.w": torch.tensor([1.0, 2.0]), "heads.t.b": torch.tensor([3.0])})
    >>> (a + a * 0.5).norm()
    5.612486080160912
    >>> list(a.only("encoder"))
    ['encoder.w']
    """

    __slots__ = ("_tensors",)

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._tensors = dict(tensors)

    @classmethod
    def of(cls, module: nn.Module, whole: bool = False) -> Params:
        """A copy of a module's parameters and of its travelling buffers; of a `whole`, of all.

        Always laid out plainly, however the module stores them, so that sums over a model
        have the same bits before and after a journey.
        """
        plain = torch.contiguous_format
        live = everything(module) if whole else slots(module)
        return cls({name: t.detach().clone(memory_format=plain) for name, t in live.items()})

    def load_into(self, module: nn.Module, whole: bool = False) -> None:
        """Overwrites the tensors of the same names in a module; the others stay."""
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

    # A Mapping's own views look every value up again.
    def keys(self) -> KeysView[str]:
        """The names."""
        return self._tensors.keys()

    def values(self) -> ValuesView[Tensor]:
        """The tensors."""
        return self._tensors.values()

    def items(self) -> ItemsView[str, Tensor]:
        """The names with their tensors."""
        return self._tensors.items()

    def __repr__(self) -> str:
        return f"Params({len(self)} tensors, {self.size:,} numbers)"

    @property
    def size(self) -> int:
        """How many numbers there are in all."""
        return sum(tensor.numel() for tensor in self._tensors.values())

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of every tensor, by name."""
        return {name: tuple(tensor.shape) for name, tensor in self._tensors.items()}

    def only(self, *roles: str) -> Params:
        """The parts of the model with one of these roles."""
        return Params({n: t for n, t in self.items() if any(has_role(n, r) for r in roles)})

    def without(self, *roles: str) -> Params:
        """The parts of the model with none of these roles."""
        return Params({n: t for n, t in self.items() if not any(has_role(n, r) for r in roles)})

    def __or__(self, other: Mapping[str, Tensor]) -> Params:
        """The union; where both have a name, `other` wins."""
        return Params({**self._tensors, **other})

    def __add__(self, other: Params) -> Params:
        return self._with(_each(torch._foreach_add, self._values(), other._like(self)))

    def __sub__(self, other: Params) -> Params:
        return self._with(_each(torch._foreach_sub, self._values(), other._like(self)))

    def __mul__(self, factor: float) -> Params:
        return self._with(_each(torch._foreach_mul, self._values(), factor))

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> Params:
        return self * (1.0 / divisor)

    def __neg__(self) -> Params:
        return self._with(_each(torch._foreach_neg, self._values()))

    def zeros(self) -> Params:
        """Zeros of the same names and shapes."""
        return Params({name: torch.zeros_like(tensor) for name, tensor in self._tensors.items()})

    def dot(self, other: Params) -> float:
        """The inner product: short fp32 sums, added up in fp64 (exact to about 1e-6)."""
        return math.fsum(
            float(torch.dot(a, b))
            for left, right in zip(self._values(), other._like(self), strict=True)
            for a, b in zip(_pieces(left), _pieces(right), strict=True)
        )

    def norm(self) -> float:
        """The Euclidean length."""
        return math.sqrt(self.dot(self))

    def equals(self, other: Params) -> bool:
        """Whether names, shapes and all values agree."""
        return self.keys() == other.keys() and all(
            torch.equal(tensor, other[name]) for name, tensor in self.items()
        )

    def _values(self) -> list[Tensor]:
        return list(self._tensors.values())

    def _like(self, other: Params) -> list[Tensor]:
        """My tensors in the order of another's names, which must be the same names."""
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
    """An operation on lists of tensors, which torch refuses where a list is empty."""
    return operation(tensors, *others, **options) or () if tensors else ()


def _pieces(tensor: Tensor) -> tuple[Tensor, ...]:
    return torch.split(tensor.reshape(-1), _CHUNK)


def mean(items: Sequence[Params], weights: Sequence[float] | None = None) -> Params:
    """The weighted mean, summed in the order given (so keep to client order)."""
    if not items:
        raise NoReplies("there is nothing to average")
    weights = [1.0] * len(items) if weights is None else weights
    total = float(sum(weights))
    if not 0 < total < math.inf:
        raise UsageError(f"the weights of a mean must have a positive sum, found {total}")
    return weighted_sum(items, [weight / total for weight in weights])


def weighted_sum(items: Sequence[Params], weights: Sequence[float]) -> Params:
    """The sum of all times their weights, in the order given."""
    first, *rest = items
    sums = list(_each(torch._foreach_mul, first._values(), weights[0]))
    for item, weight in zip(rest, weights[1:], strict=True):
        _each(torch._foreach_add_, sums, item._like(first), alpha=weight)
    return first._with(sums)
