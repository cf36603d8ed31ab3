"""One encoder for all, and every few rounds one decoder and head per task (FeSTA).

Park, Kim, Kim, Kim and Ye: Federated Split Vision Transformer for COVID-19 CXR Diagnosis using
Task-Agnostic Training, NeurIPS 2021, adapted as in Lu et al.: FedHCA², CVPR 2024, supplement C: the
encoder is the shared body, a client's decoders and heads are its tail.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from consort.core.algorithm import Algorithm, Clients, on_client
from consort.core.bounds import PositiveInt
from consort.core.contract import Count, Model, Same
from consort.core.messages import Each, Payload, Replies
from consort.core.params import Params, mean
from consort.core.roster import Roster
from consort.training.client import Client
from consort.training.local import LocalTraining

ENCODER = "encoder"


@dataclass(frozen=True)
class Server:
    """The global encoder, and by client the averaged tails that are still to be sent."""

    encoder: Params
    tails: dict[str, Params]


@dataclass(frozen=True)
class FedSTA(Algorithm[Server]):
    """Averages encoders, and every few rounds decoders and heads among clients of one task."""

    reports: ClassVar[str] = "personal"

    local: LocalTraining = LocalTraining()
    every: PositiveInt = 10
    """The number of rounds between two averages of tails."""

    def start(self, roster: Roster) -> Server:
        """The common initial encoder."""
        return Server(roster.shared(ENCODER), {})

    def round(self, server: Server, clients: Clients) -> Server:
        """All clients train; encoders are averaged, and every few rounds also tails."""
        due = clients.round % self.every == 0
        tails = tails_for(server, clients)
        replies = clients.ask(self.train, encoder=server.encoder, tail=tails, due=due)
        waiting = {c: tail for c, tail in server.tails.items() if c not in replies}
        new = task_means(replies.each("tail")) if due else {}
        return Server(replies.mean(ENCODER, weight="examples"), waiting | new)

    @on_client(
        encoder=Model(ENCODER),
        tail=lambda _, sent: Model(without=(ENCODER,)) if sent["due"] else Same(Params({})),
        examples=Count(),
    )
    def train(self, client: Client, encoder: Params, tail: Params, due: bool) -> Payload:
        """Local epochs of the global encoder and the client's tail, which is sent if it is due."""
        self.install(client, encoder, tail)
        self.local.run(client)
        trained = Params.of(client.model)
        client.state["tail"] = trained.without(ENCODER)
        sent = trained.without(ENCODER) if due else Params({})
        return {ENCODER: trained.only(ENCODER), "tail": sent, "examples": client.examples}

    def install(self, client: Client, encoder: Params, tail: Params) -> None:
        """Loads the global encoder and the client's tail, replaced by the received one if any."""
        client.recall("tail")
        tail.load_into(client.model)
        encoder.load_into(client.model)

    def evaluate(self, server: Server, clients: Clients) -> Replies:
        """The global encoder with every client's tail."""
        tails = tails_for(server, clients)
        return clients.ask(self.test, encoder=server.encoder, tail=tails)

    @on_client()
    def test(self, client: Client, encoder: Params, tail: Params) -> Payload:
        """Scores of the client's personal model."""
        self.install(client, encoder, tail)
        return {"personal": client.score()}


def tails_for(server: Server, clients: Clients) -> Each:
    """To every client the averaged tail that it has not received yet, if any."""
    return Each({client: server.tails.get(client, Params({})) for client in clients.ids})


def task_means(tails: dict[str, Params]) -> dict[str, Params]:
    """Every client's tail, its tensors averaged over those of the same name and shape."""
    alike: dict[tuple[str, tuple[int, ...]], list[Params]] = defaultdict(list)
    for tail in tails.values():
        for name, tensor in tail.items():
            alike[name, tuple(tensor.shape)].append(Params({name: tensor}))

    def averaged(items: Iterable[tuple[str, Tensor]]) -> Params:
        return Params({n: mean(alike[n, tuple(tensor.shape)])[n] for n, tensor in items})

    return {client: averaged(tail.items()) for client, tail in tails.items()}
