"""The schedule of a run, as in the `run` table of a recipe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from consort.core.bounds import Fraction, NonNegativeInt, PositiveInt, Probability
from consort.engines.middleware import ErrorPolicy
from consort.errors import UsageError
from consort.federation.selection import selection_of
from consort.training.tuning import Tuning, TuningChoice


@dataclass(frozen=True)
class Schedule:
    """The number of rounds, which clients take part, and what happens when a client fails.

    Examples:
        >>> from consort import Schedule
        >>> schedule = Schedule(rounds=100, participation=0.1, evaluate_every=10)
        >>> schedule.rounds
        100
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    rounds: PositiveInt = 10
    """The number of rounds."""
    participation: Fraction = 1.0
    """The share of the clients that take part in each round."""
    selection: Any = None
    """How they are selected: the name of a selection, a table with its `name` and options, or a
    function of `Candidates`; None draws them uniformly."""
    evaluate_every: NonNegativeInt = 1
    """Rounds from one evaluation to the next; 0 evaluates only after the last round."""
    tuning_epochs: NonNegativeInt = 0
    """Epochs of local fine-tuning after which evaluations score the model again, as `tuned`."""
    tuning_choice: TuningChoice = "last"
    """Which epoch of fine-tuning is scored: the `last`, or the `best` on validation data, the model
    before fine-tuning included."""
    dropout: Probability = 0.0
    """Simulated: the probability that a client cannot be reached in a round."""
    stragglers: Probability = 0.0
    """Simulated: the probability that a client replies too late in a round."""
    on_error: ErrorPolicy = "stop"
    """What happens when a client fails: `stop` the run, `skip` the client, or `retry`."""
    retries: NonNegativeInt = 2
    """How often `retry` repeats a call before the run stops."""

    def __post_init__(self) -> None:
        if getattr(selection_of(self.selection), "by_losses", False) and not self.evaluate_every:
            raise UsageError(
                "run.selection chooses clients by the losses of evaluations: set "
                "run.evaluate_every above 0"
            )

    @property
    def tuning(self) -> Tuning:
        """The fine-tuning before a model is scored again."""
        return Tuning(self.tuning_epochs, self.tuning_choice)
