"""Encoders and decoders are sent, while heads and BatchNorm statistics stay with the clients.

This is common to the algorithms for clients with different tasks.
"""

from __future__ import annotations

from collections.abc import Mapping

from consort.core.algorithm import Clients
from consort.core.contract import Model
from consort.core.messages import Each, Payload
from consort.core.params import BUFFERS, Params
from consort.core.roster import Roster
from consort.training.client import Client

ENCODER, DECODERS, HEADS = "encoder", "decoders", "heads"
OWN = "own"
"""The entry of a client's state with the parameters that it does not send."""


TRAVELLING = Model(ENCODER, DECODERS, without=(BUFFERS,))
"""What clients answer: see `travelling`."""


def travelling(model: Params) -> Params:
    """What is sent of `model`: encoder and decoders, without BatchNorm statistics."""
    return model.only(ENCODER, DECODERS).without(BUFFERS)


def initial_parts(roster: Roster) -> dict[str, Params]:
    """The initial encoder, which is the same for all clients, and each client's own decoders.

    Args:
        roster: The clients and their models.

    Returns:
        The parameters by client.

    Raises:
        UsageError: If the encoders of the clients differ.
    """
    encoder = travelling(roster.shared(ENCODER))
    return {client: encoder | travelling(roster.model(client)) for client in roster.ids}


def entries_for(values: Mapping[str, object], clients: Clients) -> Each:
    """The entry of `values` for each of the `clients` of the round, to be sent to it."""
    return Each({client: values[client] for client in clients.ids})


def install(client: Client, parts: Params) -> None:
    """Loads received `parts` into the model of `client`, with its own heads and statistics."""
    client.recall(OWN)
    parts.load_into(client.model)


def answer(client: Client) -> Payload:
    """The answer of `client`: its encoder and decoders; the rest is stored in its state."""
    trained = Params.of(client.model)
    sent = travelling(trained)
    client.state[OWN] = Params({n: t for n, t in trained.items() if n not in sent})
    return {"model": sent}
