"""Observers of a run: the base class of progress bars, logs and experiment trackers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from consort.core.messages import Call, Replies
from consort.core.row import Row
from consort.errors import ClientFailed


@dataclass
class Observer:
    """The base class of observers, which are told how a run proceeds; override what you need.

    Observers run in the server's process and change nothing: the results of a run do not depend on
    them. An exception of an observer ends the run.

    Examples:
        >>> from consort import Observer
        >>> class Log(Observer):
        ...     def round_started(self, round, calls):
        ...         print(f"round {round}: {calls} clients")
        >>> Log().round_started(1, 10)
        round 1: 10 clients
    """

    def described(self, about: Mapping[str, Any]) -> None:
        """What the run is; told first, to runs with a folder.

        Args:
            about: What `run.json` says: the algorithm, the seed, settings, tasks, clients.
        """

    def started(self, first: int, rounds: int) -> None:
        """The run starts or is resumed.

        Args:
            first: The next round, counted from 1.
            rounds: The number of rounds of the run.
        """

    def round_started(self, round: int, calls: int) -> None:
        """A round starts.

        Args:
            round: The round, counted from 1.
            calls: The number of clients that take part.
        """

    def answered(self, call: Call) -> None:
        """A client has replied.

        Args:
            call: The call that it replied to.
        """

    def evaluated(self, round: int, replies: Replies) -> None:
        """The clients have been evaluated.

        Args:
            round: The round after which they were evaluated.
            replies: The scores of each client: `{model: {split: {"tasks": {task: {metric:
                value}}}}}`.
        """

    def measured(self, round: int, rows: Sequence[Row]) -> None:
        """A round is finished and saved.

        Args:
            round: The round.
            rows: Its rows in the history: scores, bytes, seconds, notes.
        """

    def failed(self, error: ClientFailed) -> None:
        """A client failed, and the run continues without it.

        Args:
            error: Which client failed, and why.
        """

    def finished(self) -> None:
        """The run is complete; also called at once for a run that was complete before."""


class Observers(Observer):
    """Several observers, which are told one after the other.

    Args:
        *members: The observers.
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
