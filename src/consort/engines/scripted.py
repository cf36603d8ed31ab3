"""An engine for tests, whose answers come from a function."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from consort.core.messages import Call, Payload, Reply
from consort.errors import ClientFailed


class Scripted:
    """Answers every call with a function, and keeps all calls in `calls`.

    Args:
        script: Computes the answer to a call; a `ClientFailed` that it raises becomes the reply.
    """

    def __init__(self, script: Callable[[Call], Payload]) -> None:
        self.script = script
        self.calls: list[Call] = []

    def deliver(self, calls: Sequence[Call]) -> Iterator[Reply]:
        """Records and answers each of the `calls`."""
        for call in calls:
            self.calls.append(call)
            try:
                yield Reply(call.client, self.script(call))
            except ClientFailed as error:
                yield Reply(call.client, error=error)

    def close(self) -> None:
        """There is nothing to release."""
