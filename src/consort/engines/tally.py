"""Notices that no client gives an answer that can be used."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from consort.core.limits import LARGEST
from consort.core.messages import Call, Reply
from consort.engines.middleware import Absent, NotReached, Wrapper
from consort.errors import ClientFailed, Failure

_SHOWN = 3
"""Clients whose reasons a sentence gives."""
_LENGTH = 200
"""Characters of a reason that a sentence gives."""
_DIVERGED = (
    "holds NaN or infinite values",
    "holds values beyond",
    f"to {LARGEST:g}",
    "the training loss became",
)
"""What errors of a model that has diverged say."""


@dataclass
class Tally(Wrapper):
    """Notes how the last call of each client in a round ended."""

    ends: dict[str, ClientFailed | None] = field(default_factory=dict)
    """By client of this round its error, or None if it answered."""
    failed: dict[str, ClientFailed] = field(default_factory=dict)
    """By client its last error, since the last round with an answer."""

    def deliver(self, calls: Sequence[Call]) -> Iterator[Reply]:
        """Delivers `calls` and notes how those of training end."""
        for call, reply in zip(calls, self.engine.deliver(calls), strict=True):
            if not call.evaluation and not isinstance(reply.error, NotReached):
                self.ends[call.client] = reply.error
            yield reply

    def close_round(self, round_: int, population: int) -> None:
        """Ends a round: the next one begins with nothing noted.

        Clients that are absent may be back in the next round. Where few clients are asked in a
        round, these may all be broken or malicious: only a majority of all clients ends a run.

        Args:
            round_: The number of the round.
            population: The number of clients of the federation.

        Raises:
            Failure: In one or several rounds, the answers of all clients that were asked failed or
                were refused, and these are more than half of all clients.
        """
        ends, self.ends = self.ends, {}
        errors = {
            client: error
            for client, error in ends.items()
            if error and not isinstance(error, Absent)
        }
        self.failed = self.failed | errors if len(errors) == len(ends) else {}
        if len(self.failed) > population / 2:
            failed, self.failed = self.failed, {}
            raise Failure(_sentence(round_, list(failed.values())))


def _sentence(round_: int, errors: Sequence[ClientFailed]) -> str:
    shown = "; ".join(f"{error.client}: {_short(error.reason)}" for error in errors[:_SHOWN])
    more = f"; and {len(errors) - _SHOWN} more" if len(errors) > _SHOWN else ""
    if all(any(word in error.reason for word in _DIVERGED) for error in errors):
        way_out = "training has diverged, so lower the learning rate"
    else:
        way_out = "repair that and repeat the command; finished rounds are not lost"
    who = f"all {len(errors)} clients that were asked" if len(errors) > 1 else "the only client"
    return f"round {round_}: the answers of {who} failed or were refused ({shown}{more}): {way_out}"


def _short(reason: str) -> str:
    """A reason on one line; an error on a client may have a text of any length."""
    text = " ".join(reason.split())
    return text if len(text) <= _LENGTH else f"{text[:_LENGTH]}…"
