"""How long a run is, and what may go wrong in it, as written in a recipe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from consort.core.bounds import Count, CountOrNone, Probability, Share
from consort.engines.middleware import ErrorPolicy


@dataclass(frozen=True)
class Schedule:
    """How long a run is, who takes part, and what happens when something goes wrong."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    rounds: Count = 10
    participation: Share = 1.0
    """Share of the clients in each round."""
    evaluate_every: CountOrNone = 1
    """Rounds between evaluations; the last round is always evaluated."""
    tuning_epochs: CountOrNone = 0
    """Local epochs after which every evaluation scores the model once more, as `tuned`."""
    dropout: Probability = 0.0
    """Probability that a client is not reached in a round (injected on purpose)."""
    stragglers: Probability = 0.0
    """Probability that a client answers too late to count (injected on purpose)."""
    on_error: ErrorPolicy = "stop"
    """What an error of a client means: `stop`, `skip` the client, or `retry`."""
    retries: CountOrNone = 2
