"""What plug-ins measure about models besides the metrics of their tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from consort.core.messages import Payload
from consort.data.dataset import Dataset
from consort.data.examples import Splits
from consort.models.multitask import MultiTaskModel
from consort.tasks import Task


class EvaluationExtra(Protocol):
    """Measures something about a model besides the metrics of its tasks."""

    @property
    def tasks(self) -> Mapping[str, Mapping[str, Any]]:
        """What it adds, as if these were tasks: `metric` and `higher_is_better` of each."""
        ...

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


class Examinee(NamedTuple):
    """A client as an evaluation sees it before the run."""

    tasks: Mapping[str, Task]
    dataset: Dataset
    """The data set that it has a share of."""


Load = Callable[[Mapping[str, Any], int], Dataset]
"""Loads the data set that a table of a recipe describes, with a seed where it is generated."""


class Evaluation(Protocol):
    """What a recipe asks for; plug-ins bring such classes in their `evaluations`.

    A frozen dataclass, whose fields are the options in the recipe and are checked by their types.
    """

    def kept(self, dataset: Dataset) -> Dataset:
        """What clients get of the recipe's data: all, unless some are held out for evaluation."""
        ...

    def extra(
        self, clients: Mapping[str, Examinee], load: Load, data: Mapping[str, Any], seed: int
    ) -> EvaluationExtra:
        """What measures, made once per run.

        Args:
            clients: Everybody who will be evaluated.
            load: Loads further data sets.
            data: The recipe's table of its own data.
            seed: That of the run.

        Raises:
            UsageError: The clients or the data do not fit.
        """
        ...
