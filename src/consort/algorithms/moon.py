"""Averaging with a contrast between the global and the client's earlier features (MOON).

Li, He and Song: Model-Contrastive Federated Learning, CVPR 2021, Algorithm 1.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from consort.algorithms.fedavg import FedAvg
from consort.core.algorithm import on_client
from consort.core.bounds import NonNegativeFloat, PositiveFloat
from consort.core.contract import Count, Model
from consort.core.messages import Payload
from consort.core.params import Params
from consort.data.examples import Examples
from consort.training.client import Client
from consort.training.objectives import Objective, losses_of_features
from consort.training.scoring import recompute_statistics

PREVIOUS = "previous"
"""The entry of a client's state with the model that it trained last."""


@dataclass(frozen=True)
class Moon(FedAvg):
    """FedAvg whose clients keep their features near those of the global model."""

    mu: NonNegativeFloat = 1.0
    """Weight of the contrast: 0 is FedAvg."""
    temperature: PositiveFloat = 0.5
    """The paper's tau."""

    @on_client(model=Model(), examples=Count())
    def train(self, client: Client, model: Params) -> Payload:
        """Local epochs on the tasks' losses plus mu times the contrast."""
        model.load_into(client.model)
        received = frozen_encoder(client)
        with client.beside(PREVIOUS):
            previous = frozen_encoder(client)
        self.local.run(client, objective=self.with_contrast(received, previous))
        client.keep(PREVIOUS)
        return {"model": Params.of(client.model), "examples": client.examples}

    def with_contrast(self, received: nn.Module, previous: nn.Module) -> Objective:
        """l = l_sup + mu l_con of features z, z_glob and z_prev."""

        def objective(client: Client, batch: Examples) -> dict[str, Tensor]:
            z = client.model.encoder(batch.inputs)
            with torch.no_grad():
                z_glob, z_prev = received(batch.inputs), previous(batch.inputs)
            losses = losses_of_features(client, replace(batch, inputs=z))
            return losses | {"model contrast": self.mu * self.contrast(z, z_glob, z_prev)}

        return objective

    def contrast(self, z: Tensor, z_glob: Tensor, z_prev: Tensor) -> Tensor:
        """The mean of -log(exp(sim(z, z_glob)/tau) / (exp(…z_glob…) + exp(sim(z, z_prev)/tau)))."""
        near, far = (
            F.cosine_similarity(z.flatten(1), other.flatten(1)) / self.temperature
            for other in (z_glob, z_prev)
        )
        return F.softplus(far - near).mean()


def frozen_encoder(client: Client) -> nn.Module:
    """A copy of the present encoder of `client`, in evaluation mode."""
    if client.model.batchnorm == "recompute":
        recompute_statistics(client.model, client.data.train)
    return copy.deepcopy(client.model.encoder).requires_grad_(False).eval()
