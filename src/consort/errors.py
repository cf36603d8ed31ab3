"""Everything that can go wrong, said in one sentence."""

from __future__ import annotations


class ConsortError(Exception):
    """What a user is told, without a traceback, before the command ends."""

    exit_code = 1


class UsageError(ConsortError):
    """The request is wrong: a misspelt key, an impossible partition, models that do not mix."""

    exit_code = 2


class Failure(ConsortError):
    """The request was right, but carrying it out failed."""


class ClientFailed(Failure):
    """A client raised an error; its traceback is kept."""

    def __init__(self, client: str, reason: str, traceback: str = "") -> None:
        super().__init__(f"client {client}: {reason}")
        self.client = client
        self.reason = reason
        self.traceback = traceback


class Refused(Failure):
    """A message was not taken in, because what it holds cannot be right."""


class NoReplies(Failure):
    """Nobody answered, so there is nothing to aggregate."""
