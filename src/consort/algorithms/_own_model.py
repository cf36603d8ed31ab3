"""Algorithms whose clients keep a personal model, which is the one that is evaluated."""

from __future__ import annotations

from consort.core.algorithm import Clients, on_client
from consort.core.messages import Payload, Replies
from consort.training.client import Client

MODEL = "model"
"""The entry of a client's state with its own model."""


class OwnModel:
    """The evaluation of such algorithms; a base class that comes before `Algorithm`."""

    def evaluate(self, server: object, clients: Clients) -> Replies:  # noqa: ARG002
        """Asks all `clients` for the scores of their own models."""
        return clients.ask(self.test)

    @on_client()
    def test(self, client: Client) -> Payload:
        """The scores of the own model of `client`."""
        client.recall(MODEL)
        return {"personal": client.score()}
