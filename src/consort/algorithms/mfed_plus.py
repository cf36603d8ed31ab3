"""M-Fed with the traffic of FedAvg: first one encoder for all tasks, then a pull on the server.

Our variation of Zhou et al.: M-Fed (see `mfed`). It differs in four ways:

- `together`: in the first rounds all tasks train one encoder, because the few images of one task
  are not enough for a good one.
- `pull`: later the server moves the encoder of every task towards those of the others, in the
  place of a penalty on the clients, so that the global encoder need not be sent.
- `affinity`: tasks whose encoders move in similar directions weigh more for each other.
- `guard`: a task whose clients were set back by the pull is pulled less.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import fmean

from consort.aggregation.min_norm import gram
from consort.aggregation.one_encoder import is_one, one_step
from consort.algorithms._guard import remember, setback
from consort.algorithms._per_task import by_group, group_means, models_for
from consort.core.algorithm import Algorithm, Clients, on_client
from consort.core.bounds import Probability
from consort.core.contract import Count, Model, Number
from consort.core.contract_groups import Optional
from consort.core.messages import Payload, Replies
from consort.core.params import BUFFERS, Params, mean
from consort.core.roster import Roster
from consort.training.client import Client
from consort.training.local import LocalTraining

ENCODER = "encoder"
Affinities = dict[str, dict[str, float]]


@dataclass(frozen=True)
class Server:
    """The model of every task; by task, the weights of the others in its pull, and its strength."""

    models: dict[str, Params]
    alike: dict[str, str]
    affinities: Affinities
    pulls: dict[str, float]


@dataclass(frozen=True)
class MFedPlus(Algorithm[Server]):
    """FedAvg within every task: first with one encoder, later pulled towards similar tasks."""

    local: LocalTraining = LocalTraining()
    together: Probability = 0.4
    """The share of all rounds, at the beginning, in which all tasks have one encoder."""
    pull: Probability = 0.2
    """The largest share of the way to the mean encoder of similar tasks."""
    affinity: bool = True
    """Whether tasks are weighted by the cosine of their encoders' updates, or all equally."""
    guard: bool = True
    """Whether a task is pulled less if its start is worse than what its clients had reached."""

    def start(self, roster: Roster) -> Server:
        """The initial models of all tasks, with the same encoder."""
        roster.shared(ENCODER)
        alike = roster.alike()
        models = {first: roster.model(first) for first in alike.values()}
        equal = {task: dict.fromkeys(models, 1.0) for task in models}
        return Server(models, alike, equal, dict.fromkeys(models, self.pull))

    def round(self, server: Server, clients: Clients) -> Server:
        """FedAvg in every task; in the first rounds all encoders then become one."""
        planned = clients.round <= self.together * clients.rounds
        together = planned and is_one(map(encoder, server.models.values()))
        starts = server.models if together else pulled(server)
        replies = clients.ask(self.train, model=models_for(starts, server.alike, clients))
        trained = group_means(replies, server.alike)
        moves = {t: encoder(model) - encoder(starts[t]) for t, model in trained.items()}
        models = server.models | trained
        if together and moves:
            one = one_step(encoder(next(iter(starts.values()))), list(moves.values()))
            return replace(server, models={task: model | one for task, model in models.items()})
        return self.apart(replace(server, models=models), moves, replies, clients)

    def apart(
        self, server: Server, moves: Mapping[str, Params], replies: Replies, clients: Clients
    ) -> Server:
        """Updates the affinities between tasks and the strength of the pull."""
        affinities = server.affinities
        if self.affinity and moves:
            affinities = affinities | similar(moves, affinities)
        pulls = server.pulls | self.guarded(server, replies)
        clients.note("pull", {client: pulls[server.alike[client]] for client in clients.ids})
        return replace(server, affinities=affinities, pulls=pulls)

    def guarded(self, server: Server, replies: Replies) -> dict[str, float]:
        """Halves the pull of a task whose clients were set back; else doubles it, up to `pull`."""
        found = {}
        for task, answers in by_group(replies, server.alike).items():
            setbacks = [reply["setback"] for reply in answers.values() if "setback" in reply]
            if setbacks:
                pull = server.pulls[task]
                found[task] = pull / 2 if fmean(setbacks) > 0 else min(2 * pull, self.pull)
        return found

    @on_client(model=Model(), examples=Count(), setback=Optional(Number()))
    def train(self, client: Client, model: Params) -> Payload:
        """Local epochs from the start of the task, and how far that start was a setback."""
        model.load_into(client.model)
        loss = setback(client, self.local) if self.guard else {}
        self.local.run(client)
        if self.guard:
            remember(client, self.local)
        return {"model": Params.of(client.model), "examples": client.examples} | loss

    def evaluate(self, server: Server, clients: Clients) -> Replies:
        """The model of its task on every client's data."""
        return clients.ask(self.test, model=models_for(server.models, server.alike, clients))


def encoder(model: Params) -> Params:
    """The encoder of a model, without BatchNorm statistics."""
    return model.only(ENCODER).without(BUFFERS)


def pulled(server: Server) -> dict[str, Params]:
    """Every task's model, its encoder pulled towards the mean weighted by its affinities."""
    encoders = {task: encoder(model) for task, model in server.models.items()}
    found = {}
    for task, model in server.models.items():
        weights = server.affinities[task]
        target = mean(list(encoders.values()), [weights[other] for other in encoders])
        pull = server.pulls[task]
        found[task] = model | (encoders[task] + (target - encoders[task]) * pull) if pull else model
    return found


def similar(moves: Mapping[str, Params], known: Affinities) -> Affinities:
    """The cosines between the encoder updates of tasks, at least 0; absent tasks keep theirs."""
    products = gram(list(moves.values()))
    lengths = products.diagonal().clamp(min=0).sqrt()
    cosines = (products / (lengths[:, None] * lengths)).nan_to_num(0.0).clamp(0.0, 1.0)
    cosines.fill_diagonal_(1.0)
    return {
        task: known[task] | dict(zip(moves, row, strict=True))
        for task, row in zip(moves, cosines.tolist(), strict=True)
    }
