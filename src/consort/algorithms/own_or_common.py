"""Two models per group of clients, one with an encoder that all share; each task takes the better.

Our own algorithm. With few images, an encoder that all tasks train is better for some tasks and
worse for others, and validation data tell which. Clients with the same tasks and architecture form
a group. Every client trains

- an own model, averaged within its group (FedAvg within groups), and
- a common model, whose encoder is averaged over all groups and whose rest within its group.

Own and common models are aggregated in alternate rounds, so a round has the traffic of one model.
"""

from __future__ import annotations

import copy
import math
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from consort.algorithms._guard import judges
from consort.algorithms._parts import DECODERS, ENCODER, HEADS
from consort.algorithms._per_task import group_means
from consort.core.algorithm import Algorithm, Clients, on_client
from consort.core.contract import Count, Model, Number
from consort.core.contract_groups import ByTask
from consort.core.messages import Each, Payload, Replies
from consort.core.params import BUFFERS, Params, mean
from consort.core.roster import Roster
from consort.models.combined import combined
from consort.training.client import Client
from consort.training.local import LocalTraining
from consort.training.scoring import score

OWN, COMMON = "own", "common"


@dataclass(frozen=True)
class Server:
    """What travels of the two models of every group, and who has received which of them."""

    models: dict[str, dict[str, Params]]
    renewed: dict[str, int]
    """The round in which the own and the common models were last aggregated."""
    seen: dict[str, int]
    """The round in which a client last answered."""
    chosen: dict[str, list[str]]
    """By group, the tasks that are better with the common model."""
    alike: dict[str, str]


@dataclass(frozen=True)
class OwnOrCommon(Algorithm[Server]):
    """FedAvg within groups beside one encoder for all; validation chooses for every task."""

    reports: ClassVar[str] = "personal"
    private: ClassVar[tuple[str, ...]] = ("buffers",)

    local: LocalTraining = LocalTraining()

    def start(self, roster: Roster) -> Server:
        """One encoder for both models; a client that is alone in its group keeps all the rest."""
        encoder = roster.shared(ENCODER).without(BUFFERS)
        alike = roster.alike()
        models: dict[str, dict[str, Params]] = {OWN: {}, COMMON: {}}
        for group, count in Counter(alike.values()).items():
            if count > 1:  # at first both models are the same, and sent once
                models[OWN][group] = roster.model(group).without(BUFFERS) | encoder
            else:
                models[COMMON][group] = encoder
        return Server(models, dict.fromkeys(models, 0), dict.fromkeys(alike, 0), {}, alike)

    def round(self, server: Server, clients: Clients) -> Server:
        """All clients train both models; the own and the common ones are aggregated in turn."""
        turn = OWN if server.models[OWN] and clients.round % 2 else COMMON
        received = models_for(server, clients)
        sent = roles_for(server, turn, clients)
        replies = clients.ask(self.train, models=received, turn=turn, roles=sent)
        answers = Replies({c: reply for c, reply in replies.items() if "model" in reply})
        means = group_means(answers, server.alike)
        models = server.models[turn] | means
        if turn == COMMON and means:
            encoder = mean([model.only(ENCODER) for model in means.values()])
            models = {group: model | encoder for group, model in models.items()}
        return replace(
            server,
            models=server.models | {turn: models},
            renewed=server.renewed | ({turn: clients.round} if means else {}),
            seen=server.seen | dict.fromkeys(replies, clients.round),
            chosen=server.chosen | preferred(replies, server.alike, clients),
        )

    @on_client(
        model=lambda _, sent: part_of(sent["roles"]),
        examples=lambda _, sent: Count() if sent["roles"] else None,
        gains=lambda _, sent: ByTask(Number()) if COMMON in sent["models"] else None,
    )
    def train(self, client: Client, models: Payload, turn: str, roles: list[str]) -> Payload:
        """Local epochs of both models, and by how much the common one was better as received."""
        receive(client, models)
        told: Payload = {"gains": gains(client)} if COMMON in models else {}
        for which in (OWN, COMMON):
            client.recall(which)
            self.local.run(client)
            client.keep(which)
        if roles:
            model = client.state[turn].without(BUFFERS).only(*roles)
            told |= {"model": model, "examples": client.examples}
        return told

    def evaluate(self, server: Server, clients: Clients) -> Replies:
        """Every task with the model that was chosen for it."""
        chosen = Each({c: server.chosen.get(server.alike[c], []) for c in clients.ids})
        return clients.ask(self.test, models=models_for(server, clients), chosen=chosen)

    @on_client()
    def test(self, client: Client, models: Payload, chosen: list[str]) -> Payload:
        """Scores of the common model in the chosen tasks, and of the own one in the others."""
        receive(client, models)
        wanted = {task: COMMON if task in chosen else OWN for task in client.tasks}
        copies = {}
        for which in dict.fromkeys(wanted.values()):
            client.recall(which)
            copies[which] = copy.deepcopy(client.model)
        client.model = combined({task: copies[which] for task, which in wanted.items()})
        return {"personal": client.score()}


def part_of(roles: list[str]) -> Model | None:
    """What a client sends that was asked for these roles of a model."""
    return Model(*roles, without=(BUFFERS,)) if roles else None


def roles_for(server: Server, turn: str, clients: Clients) -> Each:
    """What every client sends of a model; one that is alone in its group, the encoder at most."""
    count = Counter(server.alike.values())
    of_one = [ENCODER] if turn == COMMON else []
    return Each(
        {
            c: [ENCODER, DECODERS, HEADS] if count[server.alike[c]] > 1 else of_one
            for c in clients.ids
        }
    )


def models_for(server: Server, clients: Clients) -> Each:
    """To every client the models of its group that were aggregated since it last answered."""
    return Each(
        {
            c: {
                which: models[server.alike[c]]
                for which, models in server.models.items()
                if server.alike[c] in models and server.renewed[which] >= server.seen[c]
            }
            for c in clients.ids
        }
    )


def receive(client: Client, models: Payload) -> None:
    """Updates the client's two models; at first the common one is the same as the own one."""
    for which in (OWN, COMMON):
        client.recall(which)
        if which in models:
            models[which].load_into(client.model)
        client.keep(which)


def gains(client: Client) -> dict[str, float]:
    """By task: by how much the common model is better, times the number of examples judged."""
    examples = judges(client)
    seen = replace(client.data, validation=examples, test=examples.rows(0, 0), extra={})
    metrics = {}
    for which in (OWN, COMMON):
        client.recall(which)
        metrics[which] = score(client.model, client.tasks, seen)["validation"]["tasks"]
    found = {}
    for name, task in client.tasks.items():
        own, common = (metrics[which][name][task.metric] for which in (OWN, COMMON))
        found[name] = (common - own if task.higher_is_better else own - common) * len(examples)
    return {name: gain for name, gain in found.items() if math.isfinite(gain)}


def preferred(replies: Replies, alike: Mapping[str, str], clients: Clients) -> dict[str, list[str]]:
    """By group, the tasks in which its clients together gain from the common model."""
    sums: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for client, reply in replies.items():
        for task, gain in reply.get("gains", {}).items():
            sums[alike[client]][task] += gain
    for task in sorted({task for gains in sums.values() for task in gains}):
        users = {c: sums[alike[c]] for c in replies if task in sums.get(alike[c], ())}
        clients.note("common_encoder", {c: float(g[task] > 0) for c, g in users.items()}, part=task)
    return {
        group: [task for task, gain in gains.items() if gain > 0] for group, gains in sums.items()
    }
