"""Being told how a run goes: the seam for progress bars, logs and experiment trackers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from consort.core.messages import Call, Replies
from consort.core.row import Row
from consort.errors import ClientFailed


@dataclass
class Observer:
    """Is told how a run goes. Derive from it and override what you want to know.

    An observer sees what happens in the server's process and changes nothing: the numbers of a
    run do not depend on it. An exception that it raises ends the run.

    >>> from consort import Observer
    >>> class Log(Observer):
    ...     def measured(self, round, rows):
    ...         for row in rows:
    ...             print(round, row.client, row.metric, row.value)
    """

    def started(self, first: int, rounds: int) -> None:
        """The run begins, or goes on after a resume.

        Args:
            first: The round that comes next, counted from 1.
            rounds: How many rounds there are in all.
        """

    def round_started(self, round: int, calls: int) -> None:
        """A round begins.

        Args:
            round: Its number, counted from 1.
            calls: How many clients take part in it.
        """

    def answered(self, call: Call) -> None:
        """A client has answered.

        Args:
            call: What it was asked.
        """

    def evaluated(self, round: int, replies: Replies) -> None:
        """The clients have been evaluated.

        Args:
            round: The round after which they were.
            replies: Their scores by client: `{model: {task: {split: {metric: value}}}}`.
        """

    def measured(self, round: int, rows: Sequence[Row]) -> None:
        """A round is over and saved.

        Args:
            round: Its number.
            rows: Everything that the history keeps of it: scores, bytes, seconds, notes.
        """

    def failed(self, error: ClientFailed) -> None:
        """A client failed, and the run goes on without it.

        Args:
            error: Which client, and why.
        """

    def finished(self) -> None:
        """The run is complete; one that was complete before is told so at once."""


class Observers(Observer):
    """Several observers that are told one after the other.

    Args:
        members: The observers.
    """

    def __init__(self, *members: Observer) -> None:
        self.members = members


def _telling_all(event: str) -> Callable[..., None]:
    def tell(self: Observers, *arguments: Any) -> None:
        for member in self.members:
            getattr(member, event)(*arguments)

    return tell


for _event in [name for name in vars(Observer) if not name.startswith("_")]:
    setattr(Observers, _event, _telling_all(_event))
