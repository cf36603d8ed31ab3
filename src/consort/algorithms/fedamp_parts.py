"""Personal encoders and decoders that attend to similar ones, whatever their task.

Huang, Chu, Zhou, Wang, Liu, Pei and Zhang: Personalized Cross-Silo Federated Learning on Non-IID
Data, AAAI 2021 (FedAMP), adapted to unlike tasks as in Lu et al.: FedHCA², CVPR 2024.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from consort.algorithms.fedamp import attention, squared_distances
from consort.algorithms.fedavg_parts import ENCODER, FedAvgParts, Server, models_for, travelling
from consort.core.algorithm import Algorithm, Clients, on_client
from consort.core.bounds import NotNegative, Positive
from consort.core.messages import Payload, Replies
from consort.core.params import Params, has_role, mean
from consort.core.roster import Roster
from consort.training.client import Client
from consort.training.local import LocalTraining
from consort.training.objectives import pull_towards

Owner = tuple[str, str]
"""A client, and what the names of an encoder or decoder of its begin with."""


@dataclass(frozen=True)
class FedAMPParts(Algorithm[Server]):
    """Pulls encoders and decoders towards means in which similar ones weigh more."""

    reports: ClassVar[str] = "personal"
    private: ClassVar[tuple[str, ...]] = ("heads", "buffers")

    local: LocalTraining = LocalTraining()
    strength: NotNegative = 1.0
    """The paper's lambda: the pull is strength / alpha times the distance."""
    alpha: Positive = 1.0
    """The server's step towards similar parts."""
    sigma: Positive = 1.0
    """How fast attention falls with the distance."""

    def start(self, roster: Roster) -> Server:
        """The common initial encoder and everybody's own decoders."""
        return FedAvgParts().start(roster)

    def round(self, server: Server, clients: Clients) -> Server:
        """Everybody trains its own model under the pull of its cloud; then clouds are made anew."""
        replies = clients.ask(self.train, model=models_for(server, clients))
        return Server(server.models | self.clouds(replies.each("model")))

    def clouds(self, models: Mapping[str, Params]) -> dict[str, Params]:
        """Every encoder's and every decoder's mean over all that are alike, by its attention."""
        found: dict[str, dict[str, Tensor]] = {client: {} for client in models}
        for family in families(models):
            parts = list(family.values())
            weights = attention(squared_distances(parts), self.alpha, self.sigma).tolist()
            for (client, prefix), row in zip(family, weights, strict=True):
                cloud = mean(parts, row)
                found[client] |= {prefix + inside: tensor for inside, tensor in cloud.items()}
        return {client: Params(cloud) for client, cloud in found.items()}

    @on_client
    def train(self, client: Client, model: Params) -> Payload:
        """Local epochs of the own model, pulled towards the cloud."""
        self.install(client, model)
        self.local.run(client, adjust=pull_towards(model, self.strength / self.alpha))
        client.state["model"] = Params.of(client.model)
        return {"model": travelling(client.state["model"])}

    def install(self, client: Client, model: Params) -> None:
        """The own model; before there is one, what was received."""
        model.load_into(client.model)
        client.recall("model")

    def evaluate(self, server: Server, clients: Clients) -> Replies:
        """Everybody's own model on its own data."""
        return clients.ask(self.test, model=models_for(server, clients))

    @on_client
    def test(self, client: Client, model: Params) -> Payload:
        """Scores of the own model; of what was received, before there is one."""
        self.install(client, model)
        return {"personal": client.score()}


def families(models: Mapping[str, Params]) -> list[dict[Owner, Params]]:
    """All encoders, and all decoders of one form, without what tells whose they are."""
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
