"""How clients measure, on validation data, whether a received model is worse than their own."""

from __future__ import annotations

from consort.core.contract import Count
from consort.core.messages import Payload
from consort.data.examples import Examples
from consort.training.client import Client
from consort.training.local import LocalTraining

REACHED = "loss reached"
"""The entry of a client's state with the loss of the model that it trained last."""


def most_steps(local: LocalTraining) -> Count:
    """How many steps a client can have taken: at most four per example and pass over its data."""
    return Count(4 * (local.steps or local.epochs))


def judges(client: Client) -> Examples:
    """The examples of `client` on which models are compared: validation or else training data."""
    return client.data.validation or client.data.train


def validation_loss(client: Client, local: LocalTraining) -> float:
    """The loss of a client's present model on the examples of `judges`.

    Args:
        client: The client.
        local: The settings of local training, with the weights of the tasks.

    Returns:
        The loss.
    """
    return local.loss(client, judges(client))


def remember(client: Client, local: LocalTraining) -> None:
    """Stores the loss of the model that the client has just trained in its state.

    Args:
        client: The client.
        local: The settings of local training, with the weights of the tasks.
    """
    client.state[REACHED] = validation_loss(client, local)


def setback(client: Client, local: LocalTraining) -> Payload:
    """By how much the loss of the received model exceeds the loss stored by `remember`.

    Args:
        client: The client, with the received model loaded.
        local: The settings of local training, with the weights of the tasks.

    Returns:
        The difference under the key `setback`; empty for a client that has not trained yet.
    """
    if REACHED not in client.state:
        return {}
    return {"setback": validation_loss(client, local) - client.state[REACHED]}
