"""Evaluations that plug-ins provide besides the metrics of the tasks."""

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
        """The additional entries among the tasks, with `metric` and `higher_is_better` of each."""
        ...

    def prepare(self) -> None:
        """Imports slow packages once, before an engine starts its processes."""
        ...

    def added_to(
        self, scores: Payload, model: MultiTaskModel, data: Splits, client: str, last: bool
    ) -> Payload:
        """Adds its metrics to a client's scores.

        Args:
            scores: The scores so far, by split and task.
            model: The model that is evaluated.
            data: The client's data.
            client: The client's name, from which randomness can be derived.
            last: Whether this is the last round.

        Returns:
            The scores with the additional entries.
        """
        ...


class Examinee(NamedTuple):
    """What an evaluation knows about a client before the run."""

    tasks: Mapping[str, Task]
    """The client's tasks, by name."""
    dataset: Dataset
    """The data set of which the client has a share."""


Load = Callable[[Mapping[str, Any], int], Dataset]
"""Loads the data set that a table of a recipe describes; the seed is for generated data sets."""


class Evaluation(Protocol):
    """An evaluation that a recipe asks for; plug-ins list such classes in their `evaluations`.

    It is a frozen dataclass. Its fields are the options in the recipe and are checked by type.
    """

    def kept(self, dataset: Dataset) -> Dataset:
        """The part of the recipe's data that is distributed among the clients.

        Args:
            dataset: All data of the recipe.

        Returns:
            The data set without what is held out for this evaluation.
        """
        ...

    def extra(
        self, clients: Mapping[str, Examinee], load: Load, data: Mapping[str, Any], seed: int
    ) -> EvaluationExtra:
        """Prepares the evaluation, once per run.

        Args:
            clients: All clients that will be evaluated, by name.
            load: Loads further data sets.
            data: The table `data` of the recipe.
            seed: The seed of the run.

        Returns:
            What is measured in every evaluation of the run.

        Raises:
            UsageError: If the clients or the data are not suitable.
        """
        ...
