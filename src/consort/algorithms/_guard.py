"""How clients judge, on validation data, whether what they received has set them back."""

from __future__ import annotations

from consort.core.messages import Payload
from consort.data.examples import Examples
from consort.training.client import Client
from consort.training.local import LocalTraining

REACHED = "loss reached"
"""Under which a client remembers the loss of the model that it trained last."""


def judges(client: Client) -> Examples:
    """The examples on which models are compared: validation data, or else training data."""
    return client.data.validation or client.data.train


def validation_loss(client: Client, local: LocalTraining) -> float:
    """The loss of the client's present model on these examples."""
    return local.loss(client, judges(client))


def remember(client: Client, local: LocalTraining) -> None:
    """Remembers the loss of the model that the client has just trained."""
    client.state[REACHED] = validation_loss(client, local)


def setback(client: Client, local: LocalTraining) -> Payload:
    """By how much the loss of the received model exceeds the one reached last.

    Empty for a client that has not trained yet.
    """
    if REACHED not in client.state:
        return {}
    return {"setback": validation_loss(client, local) - client.state[REACHED]}
