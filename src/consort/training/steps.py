"""The seam for protections that replace the steps of local training."""

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
        """Prepares the steps of one call of `LocalTraining.run`.

        Args:
            local: The settings of the training.
            client: The client that trains.
            objective: Computes the losses of a batch.
            gradients: Computes gradients from losses.
            examples: Examples in the place of the client's training data, if given.
            names: The names of the parameters that are trained.
            params: The parameters that are trained, in the same order.

        Returns:
            A function that computes the losses and gradients of a batch, and the batches.

        Raises:
            UsageError: If this training cannot be done in this way.
        """
        ...
