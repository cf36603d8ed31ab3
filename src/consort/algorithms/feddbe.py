"""A global model without domain bias, and a private bias on every client (FedDBE).

Zhang, Hua, Cao, Wang, Song, Xue, Ma and Guan: Eliminating Domain Bias for Federated Learning in
Representation Space, NeurIPS 2023. `round` and `train` are Algorithm 1: FedAvg with DBE.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from consort.algorithms._prototypes import most_common
from consort.core.algorithm import Algorithm, Clients, on_client
from consort.core.bounds import Fraction, NonNegativeFloat
from consort.core.contract import Count, Model
from consort.core.contract_groups import Features, Maybe
from consort.core.messages import Payload, Replies
from consort.core.params import Params, mean
from consort.core.roster import Roster
from consort.data.examples import Examples
from consort.models.multitask import MultiTaskModel
from consort.training.client import Client
from consort.training.local import LocalTraining
from consort.training.objectives import Objective


class Biased(nn.Module):
    """An encoder, and a bias that is added to its features."""

    def __init__(self, encoder: nn.Module, bias: Tensor) -> None:
        super().__init__()
        self.encoder = encoder
        self.bias = nn.Parameter(bias.clone())

    def forward(self, inputs: Tensor) -> Tensor:
        """The biased features of a batch."""
        features: Tensor = self.encoder(inputs) + self.bias
        return features


@dataclass(frozen=True)
class Server:
    """The global model, and the consensus: the mean feature over all clients."""

    model: Params
    consensus: Tensor | None


@dataclass(frozen=True)
class FedDBE(Algorithm[Server]):
    """FedAvg with a private bias on the features, whose mean is regularised to a consensus."""

    reports: ClassVar[str] = "personal"

    local: LocalTraining = LocalTraining()
    kappa: NonNegativeFloat = 1.0
    """Weight of the mean regularisation, which pulls the mean feature to the consensus."""
    momentum: Fraction = 0.1
    """Weight of a new batch in the running mean, the paper's mu."""

    def start(self, roster: Roster) -> Server:
        """The common initial model; there is no consensus yet."""
        return Server(roster.shared(), None)

    def round(self, server: Server, clients: Clients) -> Server:
        """In the first round the consensus is computed; then all clients train, as in FedAvg."""
        consensus = server.consensus
        if consensus is None:
            consensus = _mean_feature(clients.ask(self.survey, model=server.model))
        replies = clients.ask(self.train, model=server.model, consensus=consensus)
        return Server(replies.mean("model", weight="examples"), consensus)

    @on_client(feature=Maybe(Features(maps=True)), examples=Count())
    def survey(self, client: Client, model: Params) -> Payload:
        """The mean feature over local epochs whose result is discarded."""
        model.load_into(client.model)
        sums, counts = list[Tensor](), list[int]()

        def objective(client: Client, batch: Examples) -> dict[str, Tensor]:
            features = client.model.encoder(batch.inputs)
            sums.append(features.detach().sum(0))
            counts.append(len(batch))
            return _losses(client, batch, features)

        self.local.run(client, objective=objective)
        feature = sum(sums) / sum(counts) if counts else None
        return {"feature": feature, "examples": client.examples}

    @on_client(model=Model(), examples=Count())
    def train(self, client: Client, model: Params, consensus: Tensor) -> Payload:
        """Local epochs of the global model together with the client's bias."""
        model.load_into(client.model)
        bare = client.model
        encoder = Biased(bare.encoder, client.state.get("bias", torch.zeros_like(consensus)))
        client.model = _with_encoder(encoder, bare)
        self.local.run(client, objective=self.regularised(encoder, consensus))
        client.model = bare
        client.state["bias"] = encoder.bias.detach()
        return {"model": Params.of(client.model), "examples": client.examples}

    def regularised(self, encoder: Biased, consensus: Tensor) -> Objective:
        """The losses on biased features, and kappa times the distance of the running mean feature
        to the consensus."""
        past: Tensor | None = None

        def objective(client: Client, batch: Examples) -> dict[str, Tensor]:
            nonlocal past
            features = encoder.encoder(batch.inputs)
            present = features.mean(0)
            past = present.detach() if past is None else past
            running = torch.lerp(past, present, self.momentum)
            past = running.detach()
            distance = 0.5 * (running - consensus).square().mean()
            losses = _losses(client, batch, features + encoder.bias)
            return losses | {"mean feature": self.kappa * distance}

        return objective

    def evaluate(self, server: Server, clients: Clients) -> Replies:
        """The global model on every client's data, without and with its bias."""
        return clients.ask(self.test, model=server.model)

    @on_client()
    def test(self, client: Client, model: Params) -> Payload:
        """Scores of the model as received, and with the client's bias on its features."""
        model.load_into(client.model)
        received = client.score()
        if "bias" in client.state:
            encoder = Biased(client.model.encoder, client.state["bias"])
            client.model = _with_encoder(encoder, client.model)
        return {"global": received, "personal": client.score()}


def _with_encoder(encoder: nn.Module, model: MultiTaskModel) -> MultiTaskModel:
    """A model with another encoder and the same heads; the given one stays as it is."""
    heads, decoders = (dict(part.items()) for part in (model.heads, model.decoders))
    # Both are left in evaluation mode: training sets the mode of all parts of a model.
    model.eval()
    return MultiTaskModel(encoder, heads, decoders, model.batchnorm).eval()


def _losses(client: Client, batch: Examples, features: Tensor) -> dict[str, Tensor]:
    return {
        name: task.loss(client.model.output(name, features), batch.targets[name])
        for name, task in client.tasks.items()
    }


def _mean_feature(replies: Replies) -> Tensor:
    """Every client's mean feature, weighted by its examples."""
    taught = [r for r in replies.values() if r["examples"] and r["feature"] is not None]
    shape = most_common(reply["feature"].shape for reply in taught)
    taught = [reply for reply in taught if reply["feature"].shape == shape]
    features = [Params({"mean": reply["feature"]}) for reply in taught]
    return mean(features, [reply["examples"] for reply in taught])["mean"]
