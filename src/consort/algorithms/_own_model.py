"""Algorithms whose clients keep a model of their own, which is the one that is tested."""

from __future__ import annotations

from consort.core.algorithm import Clients, on_client
from consort.core.messages import Payload, Replies
from consort.training.client import Client

MODEL = "model"
"""Under which a client remembers its own model."""


class OwnModel:
    """The evaluation of such algorithms: to be inherited before `Algorithm`."""

    def evaluate(self, server: object, clients: Clients) -> Replies:  # noqa: ARG002
        """Every client's own model on its own data."""
        return clients.ask(self.test)

    @on_client
    def test(self, client: Client) -> Payload:
        """Scores of the client's own model."""
        client.recall(MODEL)
        return {"personal": client.score()}
