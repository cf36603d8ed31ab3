"""Aligned features and a mixture of heads for every client (FedPAC).

Xu, Tong and Huang: Personalized Federated Learning with Feature Alignment and Classifier
Collaboration, ICLR 2023. `round` is one round of Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from consort.aggregation.min_norm import min_norm_weights
from consort.algorithms._prototypes import Prototypes, prototypes_of, pull
from consort.algorithms.fedgen import count_labels, label_count
from consort.core.algorithm import Algorithm, Clients, on_client
from consort.core.bounds import NonNegativeFloat, PositiveInt
from consort.core.contract import Count, Model, Number
from consort.core.contract_groups import ByClass, ByTask, Features, LabelCounts
from consort.core.messages import Each, Payload, Replies
from consort.core.params import Params, weighted_sum
from consort.core.roster import Roster
from consort.data.examples import Examples
from consort.training.client import Client
from consort.training.linear_heads import linear_heads
from consort.training.local import LocalTraining
from consort.training.objectives import Objective, features_of, losses_of_features

BY_CLASS = ByTask(ByClass(Features(of_head=True), of_head=True), every=True)


@dataclass(frozen=True)
class Server:
    """The global encoder and centroids, every client's mixture of heads, and the mean head."""

    encoder: Params
    centroids: Prototypes
    heads: dict[str, Params]
    head: Params


@dataclass(frozen=True)
class FedPAC(Algorithm[Server]):
    """A shared encoder with features aligned by class, and heads mixed for every client."""

    reports: ClassVar[str] = "personal"

    local: LocalTraining = LocalTraining()
    strength: NonNegativeFloat = 1.0
    """Weight of the alignment, the paper's lambda."""
    head_epochs: PositiveInt = 1
    """Local epochs of the head, before those of the encoder."""

    def start(self, roster: Roster) -> Server:
        """The common initial model, without centroids."""
        head = linear_heads(roster, "fedpac")
        return Server(roster.shared().without("heads"), {}, {}, head)

    def round(self, server: Server, clients: Clients) -> Server:
        """Encoders and centroids are averaged; heads are mixed for each client that answered."""
        replies = clients.ask(
            self.train,
            encoder=server.encoder,
            heads=self.heads(server, clients),
            centroids=server.centroids,
        )
        return Server(
            encoder=replies.mean("encoder", weight="examples"),
            centroids=merged(server.centroids, replies),
            heads=dict(sorted((server.heads | mixed_heads(replies)).items())),
            head=replies.mean("heads", weight="examples"),
        )

    def heads(self, server: Server, clients: Clients) -> Each:
        """The mixture for every client; the mean head for one that has not answered yet."""
        return Each({client: server.heads.get(client, server.head) for client in clients.ids})

    @on_client(
        encoder=Model(without=("heads",)),
        heads=Model("heads"),
        h=BY_CLASS,
        labels=ByTask(LabelCounts(), every=True),
        variance=ByTask(Number(0), every=True),
        centroids=BY_CLASS,
        examples=Count(),
    )
    def train(
        self, client: Client, encoder: Params, heads: Params, centroids: Prototypes
    ) -> Payload:
        """Statistics of the received encoder; then the head is trained, and after it the encoder.

        The encoder's loss is that of the tasks plus lambda times the distance to the centroids.
        """
        (encoder | heads).load_into(client.model)
        known = statistics(client, heads)
        replace(self.local, epochs=self.head_epochs, steps=None).run(client, only=("heads",))
        self.local.run(client, objective=self.aligned(centroids), only=("encoder",))
        trained = Params.of(client.model)
        return known | {
            "encoder": trained.without("heads"),
            "heads": trained.only("heads"),
            "centroids": prototypes_of(client, features(client)),
            "examples": client.examples,
        }

    def aligned(self, centroids: Prototypes) -> Objective:
        """The losses of the tasks, and lambda times the distance of features to centroids."""

        def objective(client: Client, batch: Examples) -> dict[str, Tensor]:
            found = replace(batch, inputs=client.model.encoder(batch.inputs))
            return losses_of_features(client, found) | pull(found, centroids, self.strength)

        return objective

    def evaluate(self, server: Server, clients: Clients) -> Replies:
        """The global encoder with the mixture of heads of every client."""
        return clients.ask(self.test, encoder=server.encoder, heads=self.heads(server, clients))

    @on_client()
    def test(self, client: Client, encoder: Params, heads: Params) -> Payload:
        """Scores of the client's personal model."""
        (encoder | heads).load_into(client.model)
        return {"personal": client.score()}


def statistics(client: Client, heads: Params) -> Payload:
    """By task: h_k = p_k mu_k of every class k, how often classes occur, and the variance.

    V = (E ||z||² - sum over k of ||h_k||²) / n, with p_k the share of class k and mu_k its mean.
    """
    h, labels, variance = Prototypes(), dict[str, Tensor](), dict[str, float]()
    seen = features(client)
    for task, mu in prototypes_of(client, seen).items():
        count = labels[task] = count_labels(client, task, label_count(heads, task))
        n = max(float(count.sum()), 1.0)
        h[task] = {k: mean * (count[k] / n) for k, mean in mu.items()}
        z = seen.inputs[seen.targets[task] >= 0].double()
        spread = z.square().sum() / n - products(h[task], h[task])
        variance[task] = max(float(spread), 0.0) / n
    return {"h": h, "labels": labels, "variance": variance}


def features(client: Client) -> Examples:
    """The training examples with features as inputs; there may be no examples at all."""
    return features_of(client) if client.examples else client.data.train


def merged(centroids: Prototypes, replies: Replies) -> Prototypes:
    """c_k = sum over i of n_ik c_ik / sum over i of n_ik; a class that nobody sent stays."""
    found = {task: dict(known) for task, known in centroids.items()}
    for task in sorted({task for reply in replies.values() for task in reply["centroids"]}):
        sent = [(reply["centroids"][task], reply["labels"][task]) for reply in replies.values()]
        for k in sorted({k for means, _ in sent for k in means}):
            n = torch.stack([counts[k] for means, counts in sent if k in means])
            c = torch.stack([means[k] for means, _ in sent if k in means])
            found.setdefault(task, {})[k] = n @ c / n.sum().clamp(min=1)
    return found


def mixed_heads(replies: Replies) -> dict[str, Params]:
    """By client i: the heads sum over j of alpha_ij head_j, task by task."""
    found = {client: reply["heads"] for client, reply in replies.items()}
    for task in sorted({task for reply in replies.values() for task in reply["h"]}):
        sent = [reply["heads"].only(f"heads.{task}") for reply in replies.values()]
        told = [(reply["h"][task], reply["variance"][task]) for reply in replies.values()]
        alpha = mixtures([h for h, _ in told], [V for _, V in told])
        for client, weights in zip(found, alpha, strict=True):
            found[client] = found[client] | weighted_sum(sent, weights.tolist())
    return found


def mixtures(h: Sequence[dict[int, Tensor]], variance: Sequence[float]) -> list[Tensor]:
    """alpha_i minimises sum_j alpha_ij² V_j + ||h_i - sum_j alpha_ij h_j||² over the simplex."""
    V = torch.tensor(variance, dtype=torch.float64).diag()
    G = torch.tensor([[products(one, other) for other in h] for one in h], dtype=torch.float64)
    return [
        min_norm_weights(V + G[i, i] - G[i][:, None] - G[i][None, :] + G) for i in range(len(h))
    ]


def products(one: dict[int, Tensor], other: dict[int, Tensor]) -> float:
    """The inner product of h_k, summed over the classes that both clients have."""
    return sum(
        float(one[k].double() @ other[k].double()) for k in sorted(one.keys() & other.keys())
    )
