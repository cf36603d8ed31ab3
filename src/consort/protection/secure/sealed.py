"""Answers under secure aggregation, of which only means are known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from consort.core.messages import OnlyMeans
from consort.core.params import Params
from consort.errors import UsageError


@dataclass(frozen=True)
class Sealed(OnlyMeans):
    """Answers of which only means are known; it takes the place of every single answer."""

    algorithm: str
    """The name of the algorithm, for error messages."""
    clients: tuple[str, ...]
    """The clients that answered."""
    weights: Mapping[str, str | None]
    """The entry that weights each mean, by the key of the mean."""
    means: Mapping[str, Params]
    """The means, by key."""

    def mean(self, key: str, weight: object, clients: Sequence[str]) -> Params:
        """The mean over all clients that answered: see `OnlyMeans.mean`."""
        known = key in self.means and weight == self.weights[key]
        if not known or tuple(clients) != self.clients:
            raise self._hidden(f"another mean of {key!r} than the one it has declared")
        return self.means[key]

    def __getitem__(self, key: str) -> Any:
        raise self._hidden(f"{key!r} of single clients")

    def __iter__(self) -> Iterator[str]:
        raise self._hidden("the answers of single clients")

    def __len__(self) -> int:
        raise self._hidden("the answers of single clients")

    def _hidden(self, what: str) -> UsageError:
        return UsageError(
            f"{self.algorithm} needs {what}, which secure aggregation hides: choose an algorithm "
            "that needs only means, such as fedavg, or remove [secure]"
        )
