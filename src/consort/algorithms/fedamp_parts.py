"""Personal encoders and decoders that are pulled towards similar ones, whatever their task.

Huang, Chu, Zhou, Wang, Liu, Pei and Zhang: Personalized Cross-Silo Federated Learning on Non-IID
Data, AAAI 2021 (FedAMP), adapted to heterogeneous tasks as in Lu et al.: FedHCA², CVPR 2024,
supplement C.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from consort.aggregation.distance_attention import distance_attention, squared_distances
from consort.algorithms._own_model import MODEL
from consort.algorithms._parts import ENCODER, TRAVELLING, entries_for, initial_parts, travelling
from consort.core.algorithm import Algorithm, Clients, on_client
from consort.core.bounds import NonNegativeFloat, PositiveFloat
from consort.core.messages import Payload, Replies
from consort.core.params import Params, has_role, mean
from consort.core.roster import Roster
from consort.training.client import Client
from consort.training.local import LocalTraining
from consort.training.objectives import pull_towards

Owner = tuple[str, str]
"""A client, and the prefix of the names in one of its encoders or decoders."""


@dataclass(frozen=True)
class Server:
    """By client, the cloud models of its encoder and its decoders."""

    models: dict[str, Params]


@dataclass(frozen=True)
class FedAMPParts(Algorithm[Server]):
    """Pulls encoders and decoders towards means in which similar ones weigh more."""

    reports: ClassVar[str] = "personal"
    private: ClassVar[tuple[str, ...]] = ("heads", "buffers")

    local: LocalTraining = LocalTraining()
    strength: NonNegativeFloat = 1.0
    """The paper's lambda: the pull is strength / alpha times the distance."""
    alpha: PositiveFloat = 1.0
    """The server's step towards similar parts."""
    sigma: PositiveFloat = 1.0
    """The distance over which the weight of a part falls to 1/e."""

    def start(self, roster: Roster) -> Server:
        """The common initial encoder and every client's own decoders."""
        return Server(initial_parts(roster))

    def round(self, server: Server, clients: Clients) -> Server:
        """All clients train, pulled towards their cloud models u_i, which are then renewed."""
        replies = clients.ask(self.train, model=entries_for(server.models, clients))
        return Server(server.models | self.clouds(replies.each("model")))

    def clouds(self, models: Mapping[str, Params]) -> dict[str, Params]:
        """u_i = sum over j of xi_ij w_j, among encoders and among decoders of one form."""
        found: dict[str, dict[str, Tensor]] = {client: {} for client in models}
        for family in families(models):
            parts = list(family.values())
            xi = distance_attention(squared_distances(parts), self.alpha, self.sigma).tolist()
            for (client, prefix), row in zip(family, xi, strict=True):
                cloud = mean(parts, row)
                found[client] |= {prefix + inside: tensor for inside, tensor in cloud.items()}
        return {client: Params(cloud) for client, cloud in found.items()}

    @on_client(model=TRAVELLING)
    def train(self, client: Client, model: Params) -> Payload:
        """Local epochs on F_i(w) + lambda / (2 alpha) ||w - u_i||²."""
        self.install(client, model)
        self.local.run(client, adjust=pull_towards(model, self.strength / self.alpha))
        client.state[MODEL] = Params.of(client.model)
        return {"model": travelling(client.state[MODEL])}

    def install(self, client: Client, model: Params) -> None:
        """Loads the personal model, or what was received if the client has not trained yet."""
        model.load_into(client.model)
        client.recall(MODEL)

    def evaluate(self, server: Server, clients: Clients) -> Replies:
        """Every client's personal model on its own data."""
        return clients.ask(self.test, model=entries_for(server.models, clients))

    @on_client()
    def test(self, client: Client, model: Params) -> Payload:
        """Scores of the personal model, or of what was received if there is none yet."""
        self.install(client, model)
        return {"personal": client.score()}


def families(models: Mapping[str, Params]) -> list[dict[Owner, Params]]:
    """All encoders, and all decoders of one form, by owner and without the owner's prefix."""
    parts: dict[Owner, dict[str, Tensor]] = defaultdict(dict)
    for client, model in models.items():
        for name, tensor in model.items():
            words = name.split(".", 1 if has_role(name, ENCODER) else 2)
            parts[client, name.removesuffix(words[-1])][words[-1]] = tensor
    alike: dict[object, dict[Owner, Params]] = defaultdict(dict)
    for owner, part in parts.items():
        whole = Params(part)
        form = owner[1].partition(".")[0], tuple(whole.shapes.items())
        alike[form][owner] = whole
    return list(alike.values())
