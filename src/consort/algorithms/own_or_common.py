"""Two models: that of the clients that are alike, and one whose encoder all share; choose by task.

Our own. With few images, an encoder that all tasks train is better for some of them and worse for
others; which these are shows in validation data, as soon as both are at hand. The two models take
turns to travel, so that a round costs no more than one of them.
"""

from __future__ import annotations

import copy
import math
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from consort.algorithms.fedavg_parts import DECODERS, ENCODER
from consort.algorithms.fedavg_per_task import means
from consort.algorithms.fedhca2_plus import judges
from consort.core.algorithm import Algorithm, Clients, on_client
from consort.core.messages import Each, Payload, Replies
from consort.core.params import BUFFERS, Params, mean
from consort.core.roster import Roster
from consort.models.combined import combined
from consort.training.client import Client
from consort.training.local import LocalTraining
from consort.training.scoring import score

HEADS = "heads"
OWN, COMMON = "own", "common"


@dataclass(frozen=True)
class Server:
    """What travels of the two models of every kind of clients, and who has which of them."""

    models: dict[str, dict[str, Params]]
    renewed: dict[str, int]
    """The round in which each of the two was renewed."""
    seen: dict[str, int]
    """The round in which a client answered last."""
    chosen: dict[str, list[str]]
    """The tasks of every kind that are better off with the common encoder."""
    alike: dict[str, str]


@dataclass(frozen=True)
class OwnOrCommon(Algorithm[Server]):
    """FedAvg within kinds beside one encoder for all; for every task, what validation prefers."""

    reports: ClassVar[str] = "personal"
    private: ClassVar[tuple[str, ...]] = ("buffers",)

    local: LocalTraining = LocalTraining()

    def start(self, roster: Roster) -> Server:
        """One encoder for both; a client that is the only one of its kind keeps all the rest."""
        encoder = roster.shared(ENCODER).without(BUFFERS)
        alike = roster.alike()
        models: dict[str, dict[str, Params]] = {OWN: {}, COMMON: {}}
        for kind, count in Counter(alike.values()).items():
            if count > 1:  # at first both are the same, and sent once
                models[OWN][kind] = roster.model(kind).without(BUFFERS) | encoder
            else:
                models[COMMON][kind] = encoder
        return Server(models, dict.fromkeys(models, 0), dict.fromkeys(alike, 0), {}, alike)

    def round(self, server: Server, clients: Clients) -> Server:
        """Everybody trains both models; in turns, the own and the common ones are put together."""
        turn = OWN if server.models[OWN] and clients.round % 2 else COMMON
        replies = clients.ask(
            self.train, news=news(server, clients), turn=turn, roles=roles(server, turn, clients)
        )
        found = means(Replies({c: r for c, r in replies.items() if "model" in r}), server.alike)
        models = server.models[turn] | found
        if turn == COMMON and found:
            encoder = mean([model.only(ENCODER) for model in found.values()])
            models = {kind: model | encoder for kind, model in models.items()}
        return replace(
            server,
            models=server.models | {turn: models},
            renewed=server.renewed | ({turn: clients.round} if found else {}),
            seen=server.seen | dict.fromkeys(replies, clients.round),
            chosen=server.chosen | preferred(replies, server.alike, clients),
        )

    @on_client
    def train(self, client: Client, news: Payload, turn: str, roles: list[str]) -> Payload:
        """Local epochs for both models, and how much better the common one was as it came."""
        receive(client, news)
        told: Payload = {"gains": gains(client)} if COMMON in news else {}
        for which in (OWN, COMMON):
            client.recall(which)
            self.local.run(client)
            client.keep(which)
        if roles:
            model = client.state[turn].without(BUFFERS).only(*roles)
            told |= {"model": model, "examples": client.examples}
        return told

    def evaluate(self, server: Server, clients: Clients) -> Replies:
        """Every task by the model that was chosen for it."""
        chosen = Each({c: server.chosen.get(server.alike[c], []) for c in clients.ids})
        return clients.ask(self.test, news=news(server, clients), chosen=chosen)

    @on_client
    def test(self, client: Client, news: Payload, chosen: list[str]) -> Payload:
        """Scores of the own model, and of the common one in its tasks."""
        receive(client, news)
        wanted = {task: COMMON if task in chosen else OWN for task in client.tasks}
        models = {}
        for which in dict.fromkeys(wanted.values()):
            client.recall(which)
            models[which] = copy.deepcopy(client.model)
        client.model = combined({task: models[which] for task, which in wanted.items()})
        return {"personal": client.score()}


def roles(server: Server, turn: str, clients: Clients) -> Each:
    """What everybody sends of a model: who is the only one of its kind, the encoder at most."""
    count = Counter(server.alike.values())
    of_one = [ENCODER] if turn == COMMON else []
    return Each(
        {
            c: [ENCODER, DECODERS, HEADS] if count[server.alike[c]] > 1 else of_one
            for c in clients.ids
        }
    )


def news(server: Server, clients: Clients) -> Each:
    """Everybody's models, as far as they were renewed since it last heard of them."""
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


def receive(client: Client, news: Payload) -> None:
    """Both models with their news; the common one begins as the own does."""
    for which in (OWN, COMMON):
        client.recall(which)
        if which in news:
            news[which].load_into(client.model)
        client.keep(which)


def gains(client: Client) -> dict[str, float]:
    """How much better the common model does in every task, times the examples that say so."""
    examples = judges(client)
    seen = replace(client.data, validation=examples, test=examples.rows(0, 0), marked=None)
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
    """The tasks in which clients of a kind gain by the common model, all in all."""
    sums: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for client, reply in replies.items():
        for task, gain in reply.get("gains", {}).items():
            sums[alike[client]][task] += gain
    for task in sorted({task for gains in sums.values() for task in gains}):
        users = {c: sums[alike[c]] for c in replies if task in sums.get(alike[c], ())}
        clients.note("common_encoder", {c: float(g[task] > 0) for c, g in users.items()}, part=task)
    return {
        kind: [task for task, gain in gains.items() if gain > 0] for kind, gains in sums.items()
    }
