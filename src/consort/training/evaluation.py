"""What a domain adds to the scores of a client."""

from __future__ import annotations

from typing import Protocol

from consort.core.messages import Payload
from consort.data.examples import Splits
from consort.models.multitask import MultiTaskModel


class EvaluationExtra(Protocol):
    """Measures something about a model besides the metrics of its tasks."""

    def prepare(self) -> None:
        """Imports what is slow, once, before an engine starts its processes."""
        ...

    def added_to(
        self, scores: Payload, model: MultiTaskModel, data: Splits, client: str, last: bool
    ) -> Payload:
        """Adds its metrics to a client's scores.

        Args:
            scores: The scores so far, by task and split.
            model: The model that is scored.
            data: The client's data.
            client: The client's name, for randomness of its own.
            last: Whether this is the last round.

        Returns:
            The scores with more entries.
        """
        ...
