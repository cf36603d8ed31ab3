"""The one thing that differs between this process, many processes and a network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from consort.core.messages import Call, Reply


class Engine(Protocol):
    """Carries calls to clients and brings their answers back."""

    def deliver(self, calls: Sequence[Call]) -> Iterator[Reply]:
        """Yields one reply per call, in the order of the calls; errors are replies too."""
        ...

    def close(self) -> None:
        """Lets go of processes and connections."""
        ...
