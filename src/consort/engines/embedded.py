"""An engine with all clients in this process, one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from consort.core.messages import Call, Reply
from consort.engines.host import ClientHost


class Embedded:
    """The simplest engine: a loop.

    Args:
        host: Runs the clients.
    """

    def __init__(self, host: ClientHost) -> None:
        self.host = host

    def deliver(self, calls: Sequence[Call]) -> Iterator[Reply]:
        """Answers each of the `calls` when its reply is consumed."""
        for chunk in self.host.chunks(calls):
            yield from self.host.answer(chunk)

    def close(self) -> None:
        """There is nothing to release."""
