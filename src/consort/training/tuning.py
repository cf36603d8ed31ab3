"""Fine-tuning of a model before it is tested."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from consort.core.params import Params
from consort.training.client import Client
from consort.training.local import LocalTraining

TuningChoice: TypeAlias = Literal["last", "best"]


@dataclass(frozen=True)
class Tuning:
    """How long a client fine-tunes a model before it is tested, and which epoch is tested."""

    epochs: int = 0
    """The number of epochs; 0 is no fine-tuning."""
    choice: TuningChoice = "last"
    """The model after the last epoch, or the one with the smallest loss on validation data among
    the received model and those after each epoch, each of which starts the optimiser anew. Without
    validation data, training data decide."""

    def run(self, client: Client, local: LocalTraining) -> None:
        """Fine-tunes the client's model.

        Args:
            client: The client.
            local: Its local training.
        """
        if self.choice == "last":
            local.tuning(self.epochs).run(client)
            return
        tuned = [Params.of(client.model, whole=True)]
        for _ in range(self.epochs):
            local.tuning(1).run(client)
            tuned.append(Params.of(client.model, whole=True))
        local.choose(client, tuned, client.data.validation or client.data.train)
