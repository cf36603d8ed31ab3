"""Another way to take the steps of local training, which a protection may ask for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from torch import Tensor

from consort.data.examples import Examples

if TYPE_CHECKING:
    from consort.training.client import Client
    from consort.training.local import LocalTraining
    from consort.training.objectives import Gradients, Objective, Step


class StepRule(Protocol):
    """Replaces the batches and the gradients of `LocalTraining.run`."""

    def __call__(
        self,
        local: LocalTraining,
        client: Client,
        *,
        objective: Objective,
        gradients: Gradients,
        examples: Examples | None,
        names: Sequence[str],
        params: Sequence[Tensor],
    ) -> tuple[Step, Iterator[Examples]]:
        """The steps of one call of `LocalTraining.run`.

        Args:
            local: The settings of the training.
            client: The client that trains.
            objective: From a batch to the losses of the tasks.
            gradients: From losses to gradients.
            examples: What takes the place of the client's training data, if anything.
            names: The parameters that move, by name.
            params: The same parameters.

        Returns:
            A function from a batch to its losses and gradients, and the batches.

        Raises:
            UsageError: This training cannot be done in this way.
        """
        ...
