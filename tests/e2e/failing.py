"""An algorithm that fails on one client, with an error that quotes the client's data."""

from __future__ import annotations

from dataclasses import dataclass

from consort.algorithms.ditto import Ditto
from consort.core.algorithm import on_client
from consort.core.messages import Payload
from consort.core.params import Params
from consort.training.client import Client

QUOTED = "THE-PATIENT-OF-THIS-ERROR"
FAILS = "c-0"


@dataclass(frozen=True)
class Failing(Ditto):
    """Ditto, but one client's training fails in the second round."""

    @on_client
    def train(self, client: Client, model: Params) -> Payload:
        """Ditto's work, and then perhaps the error."""
        answer = super().train(client, model)
        if (client.id, client.round) == (FAILS, 2):
            raise KeyError(f"{QUOTED}: {client.data.train.inputs[0].tolist()}")
        return answer
