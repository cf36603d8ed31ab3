"""Being told how a run goes."""

from __future__ import annotations

from dataclasses import dataclass

from consort.core.messages import Call, Replies
from consort.errors import ClientFailed


@dataclass
class Watcher:
    """Is told how a run goes; progress bars derive from it."""

    def round_started(self, round: int, calls: int) -> None:
        """A round begins in which about so many calls are made."""

    def answered(self, call: Call) -> None:
        """A client has answered."""

    def evaluated(self, round: int, replies: Replies) -> None:
        """The clients have been evaluated."""

    def failed(self, error: ClientFailed) -> None:
        """A client failed, and the run goes on without it."""
