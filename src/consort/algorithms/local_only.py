"""No federation: every client trains alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from consort.algorithms._own_model import MODEL, OwnModel
from consort.core.algorithm import Algorithm, Clients, on_client
from consort.core.messages import Payload
from consort.core.params import Params
from consort.core.roster import Roster
from consort.training.client import Client
from consort.training.local import LocalTraining


@dataclass(frozen=True)
class Server:
    """Nothing: the server has no part in the training."""


@dataclass(frozen=True)
class LocalOnly(OwnModel, Algorithm[Server]):
    """Every client trains its own model and sends nothing: the baseline for all others."""

    reports: ClassVar[str] = "personal"
    private: ClassVar[tuple[str, ...]] = ("encoder", "decoders", "heads")
    trains_only_by_steps: ClassVar[bool] = True

    local: LocalTraining = LocalTraining()

    def start(self, roster: Roster) -> Server:  # noqa: ARG002
        """Nothing to prepare."""
        return Server()

    def round(self, server: Server, clients: Clients) -> Server:
        """All clients go on training."""
        clients.ask(self.train)
        return server

    @on_client()
    def train(self, client: Client) -> Payload:
        """Local epochs from where this client stopped last time."""
        client.recall(MODEL)
        self.local.run(client)
        client.state[MODEL] = Params.of(client.model)
        return {}
