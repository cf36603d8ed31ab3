"""Clusters that are split when the updates of their clients disagree (CFL).

Sattler, Müller and Samek: Clustered Federated Learning: Model-Agnostic Distributed Multi-Task
Optimization under Privacy Constraints, IEEE TNNLS 2021 (arXiv 1910.01991). `round` follows
Algorithm 3, `bipartition` Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar

from consort.core.algorithm import Algorithm, Clients, on_client
from consort.core.bounds import NonNegativeFloat
from consort.core.contract import Count, Model
from consort.core.messages import Each, Payload, Replies
from consort.core.params import Params
from consort.core.roster import Roster
from consort.training.client import Client
from consort.training.local import LocalTraining


@dataclass(frozen=True)
class Server:
    """The model and the clients of every cluster, and the norm of the longest update so far."""

    models: list[Params]
    clusters: list[list[str]]
    longest: float


@dataclass(frozen=True)
class CFL(Algorithm[Server]):
    """FedAvg inside clusters; one that is stationary while its clients are not is split in two."""

    reports: ClassVar[str] = "personal"
    trains_only_by_steps: ClassVar[bool] = True

    local: LocalTraining = LocalTraining()
    eps1: NonNegativeFloat = 0.25
    """A cluster is stationary if its mean update is shorter than this times its longest one."""
    eps2: NonNegativeFloat = 0.25
    """Its clients are not if that one is longer than this times the longest one of all rounds."""

    def start(self, roster: Roster) -> Server:
        """One cluster of all clients."""
        return Server([roster.shared()], [list(roster.ids)], 0.0)

    def round(self, server: Server, clients: Clients) -> Server:
        """Splits clusters whose clients disagree; then FedAvg in every cluster."""
        replies = clients.ask(self.train, model=models_for(clients, server))
        longest = max(server.longest, longest_update(replies))
        models, clusters = list(server.models), list(server.clusters)
        for number, members in enumerate(server.clusters):
            answers = answers_of(members, replies)
            if self.incongruent(answers, longest):
                leaving = smaller_half(answers)
                clusters[number] = [client for client in members if client not in leaving]
                clusters.append(leaving)
                models.append(models[number])
        moved = map(after_step, models, (answers_of(members, replies) for members in clusters))
        return Server(list(moved), clusters, longest)

    def incongruent(self, answers: Replies, longest: float) -> bool:
        """Whether these clients move, but their mean does not."""
        if len(answers) < 2:
            return False
        here = longest_update(answers)
        step = directions(answers.mean("update", weight="examples")).norm()
        return step < self.eps1 * here and here > self.eps2 * longest

    @on_client(update=Model(), examples=Count())
    def train(self, client: Client, model: Params) -> Payload:
        """Local epochs from the model of the cluster."""
        model.load_into(client.model)
        self.local.run(client)
        return {"update": Params.of(client.model) - model, "examples": client.examples}

    def evaluate(self, server: Server, clients: Clients) -> Replies:
        """The model of its cluster on every client's data."""
        clients.note("chosen_model", cluster_of_each(server))
        return clients.ask(self.test, model=models_for(clients, server))


def cluster_of_each(server: Server) -> dict[str, int]:
    """The number of every client's cluster."""
    return {client: k for k, members in enumerate(server.clusters) for client in members}


def models_for(clients: Clients, server: Server) -> Each:
    """To every client of the round the model of its cluster."""
    numbers = cluster_of_each(server)
    return Each({client: server.models[numbers[client]] for client in clients.ids})


def answers_of(members: Sequence[str], replies: Replies) -> Replies:
    """The answers of a cluster's clients, without those that have no examples."""
    heard = [client for client in members if client in replies and replies[client]["examples"]]
    return Replies({client: replies[client] for client in heard})


def after_step(model: Params, answers: Replies) -> Params:
    """The model after the mean update of its clients."""
    return model + answers.mean("update", weight="examples") if answers else model


def longest_update(answers: Replies) -> float:
    """The norm of the longest update."""
    return max((directions(u).norm() for u in answers.each("update").values()), default=0.0)


def directions(update: Params) -> Params:
    """An update without BatchNorm statistics, for norms and angles."""
    return update.without("buffers")


def smaller_half(answers: Replies) -> list[str]:
    """The clients that leave when a cluster is split; all others stay, absent ones included."""
    _, leaving = sorted(bipartition(answers), key=len, reverse=True)
    return leaving


def bipartition(answers: Replies) -> list[list[str]]:
    """The two groups for which the largest cosine between clients of different groups is smallest.

    Joining the most similar clients until two groups are left finds the best of all splits.
    """
    updates = {client: directions(update) for client, update in answers.each("update").items()}
    alike = {(i, j): cosine(updates[i], updates[j]) for i, j in combinations(updates, 2)}
    groups = [[client] for client in updates]
    for pair in sorted(alike, key=alike.__getitem__, reverse=True):
        one, other = (next(group for group in groups if client in group) for client in pair)
        if one is not other and len(groups) > 2:
            groups.remove(other)
            one += other
    return sorted(map(sorted, groups))


def cosine(one: Params, other: Params) -> float:
    """The cosine of the angle between two updates, 0 if one of them is zero."""
    lengths = one.norm() * other.norm()
    return one.dot(other) / lengths if lengths else 0.0
