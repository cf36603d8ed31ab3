"""Encoders and decoders that travel, while heads and BatchNorm statistics stay with their clients.

What the algorithms for clients with different tasks have in common.
"""

from __future__ import annotations

from collections.abc import Mapping

from consort.core.algorithm import Clients
from consort.core.messages import Each, Payload
from consort.core.params import BUFFERS, Params
from consort.core.roster import Roster
from consort.training.client import Client

ENCODER, DECODERS, HEADS = "encoder", "decoders", "heads"
OWN = "own"
"""Under which a client remembers what it does not send."""


def travelling(model: Params) -> Params:
    """What is sent of a model: encoder and decoders, without BatchNorm statistics."""
    return model.only(ENCODER, DECODERS).without(BUFFERS)


def initial_parts(roster: Roster) -> dict[str, Params]:
    """By client: the initial encoder, which is the same for all, and the client's own decoders."""
    encoder = travelling(roster.shared(ENCODER))
    return {client: encoder | travelling(roster.model(client)) for client in roster.ids}


def entries_for(values: Mapping[str, object], clients: Clients) -> Each:
    """To every client of the round its own entry."""
    return Each({client: values[client] for client in clients.ids})


def install(client: Client, parts: Params) -> None:
    """Loads the received encoder and decoders beneath the client's own heads and statistics."""
    client.recall(OWN)
    parts.load_into(client.model)


def answer(client: Client) -> Payload:
    """The encoder and decoders of the trained model; the client remembers the rest."""
    trained = Params.of(client.model)
    sent = travelling(trained)
    client.state[OWN] = Params({n: t for n, t in trained.items() if n not in sent})
    return {"model": sent}
