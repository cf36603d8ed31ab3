"""The protocol of engines, which deliver calls in one process, to many, or over a network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from consort.core.messages import Call, Reply


class Engine(Protocol):
    """Delivers calls to clients and returns their replies."""

    def deliver(self, calls: Sequence[Call]) -> Iterator[Reply]:
        """Delivers calls.

        Args:
            calls: One call per client.

        Yields:
            One reply per call, in the order of the calls; an error is a reply too.
        """
        ...

    def close(self) -> None:
        """Releases processes and connections."""
        ...
