"""Clients with unlike encoders who share what their heads have learnt, if it helps them.

FedMH: every step follows the shortest combination of the tasks' gradients; the server adds up the
updates of the heads, client after client, and everyone takes over the sums that improve its tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate
from typing import ClassVar, Literal

import torch

from consort.aggregation.pareto import Choice, all_choices, published_choices, sum_if_improved
from consort.algorithm import Algorithm, Client, Clients, on_client
from consort.errors import NoReplies
from consort.local import LocalTraining, features_of
from consort.messages import Payload, Replies
from consort.params import Params
from consort.roster import Roster
from consort.task_steps import TaskSteps, Weighting
from consort.types import NotNegative

MODEL = "model"
Losses = Callable[[Choice], Iterable[float]]
"""Every task's loss with its prefix of the others' updates; -1 stands for the heads as they are."""


@dataclass(frozen=True)
class Server:
    """Nothing: all that lasts is with the clients."""


@dataclass(frozen=True)
class FedMH(Algorithm[Server]):
    """Two heads on any encoder: min-norm steps, and a search among sums of head updates."""

    reports: ClassVar[str] = "personal"
    private: ClassVar[tuple[str, ...]] = ("encoder",)

    local: LocalTraining = LocalTraining()
    weighting: Weighting = "exact"
    """Where the weights of the tasks come from: the encoder's gradients, or its features'."""
    one_by_one: bool = False
    """Whether the tasks are trained one after the other, the last one first."""
    search: Literal["published", "all", "none"] = "published"
    """The combinations of updates that are tried."""
    accept: Literal["first", "best"] = "first"
    """Whether the first combination that improves is taken, or the one with the smallest sum."""
    significance: NotNegative = 0.01
    """The share by which at least one loss must fall."""
    first_prefix: Literal[0, 1] = 0
    """The smallest prefix that all tasks take together."""
    cached: bool = True
    """Whether features are computed once for the whole search, which changes no result."""

    def start(self, roster: Roster) -> Server:
        """All clients must have the same heads; their encoders are their own affair."""
        roster.shared("heads", "decoders")
        return Server()

    def round(self, server: Server, clients: Clients) -> Server:
        """Everyone trains, the heads' updates are added up, everyone looks for what helps."""
        replies = clients.ask(self.train)
        if not replies:
            raise NoReplies("no client trained")
        note_by_task(clients, "task_weight", replies, "weights")
        if self.search != "none":
            sums = list(accumulate(replies.each("update").values()))
            taken = clients.among(replies).ask(self.take_over, sums=sums)
            note_by_task(clients, "updates_taken", taken, "taken")
        return server

    @on_client
    def train(self, client: Client) -> Payload:
        """Local epochs; only what they changed in the heads is sent, as something to subtract."""
        client.recall(MODEL)
        before = Params.of(client.model).without("encoder")
        steps = TaskSteps(self.weighting)
        for local in self.trainings(client):
            local.run(client, objective=steps.losses, gradients=steps.gradients)
        client.state[MODEL] = Params.of(client.model)
        update = before - client.state[MODEL].without("encoder")
        return {"update": update, "weights": steps.mean_weights()}

    def trainings(self, client: Client) -> list[LocalTraining]:
        """One for all tasks together, or one for each."""
        if not self.one_by_one:
            return [self.local]
        tasks = list(client.tasks)
        alone = [{task: float(task == chosen) for task in tasks} for chosen in reversed(tasks)]
        return [replace(self.local, task_weights=weights) for weights in alone]

    @on_client
    def take_over(self, client: Client, sums: list[Params]) -> Payload:
        """Subtracts from each head the sum of updates that the search prefers, or nothing."""
        client.recall(MODEL)
        tasks = list(client.tasks)
        found = self.look(len(sums), len(tasks), self.losses(client, sums))
        if found is not None:
            model: Params = client.state[MODEL]
            for task, prefix in zip(tasks, found, strict=True):
                model = model | without(head_of(model, task), sums[prefix])
            client.state[MODEL] = model
        taken = [-1] * len(tasks) if found is None else found
        return {"taken": dict(zip(tasks, taken, strict=True))}

    def look(self, prefixes: int, tasks: int, losses: Losses) -> Choice | None:
        """The choice to take, if one is good."""
        choices = (
            all_choices(prefixes, tasks)
            if self.search == "all"
            else published_choices(prefixes, tasks, self.first_prefix)
        )
        before = list(losses((-1,) * tasks))
        best, smallest = None, sum(before)
        for choice in choices:
            total = sum_if_improved(before, losses(choice), self.significance)
            if total < smallest:
                best, smallest = choice, total
                if self.accept == "first":
                    break
        return best

    def losses(self, client: Client, sums: list[Params]) -> Losses:
        """Losses on all training data, each computed when it is asked for, and only once: it
        depends on one head and its prefix."""
        heads = {task: head_of(client.state[MODEL], task) for task in client.tasks}
        kept = features_of(client) if self.cached else None

        @cache
        @torch.inference_mode()
        def loss(task: str, prefix: int) -> float:
            head = heads[task] if prefix < 0 else without(heads[task], sums[prefix])
            head.load_into(client.model)
            seen = kept or features_of(client)
            output = client.model.output(task, seen.inputs)
            return client.tasks[task].loss(output, seen.targets[task]).item()

        return lambda choice: map(loss, client.tasks, choice)

    def evaluate(self, server: Server, clients: Clients) -> Replies:  # noqa: ARG002
        """Every client's own model."""
        return clients.ask(self.test)

    @on_client
    def test(self, client: Client) -> Payload:
        """Scores of the client's own model."""
        client.recall(MODEL)
        return {"personal": client.score()}


def head_of(model: Params, task: str) -> Params:
    """What belongs to one task alone."""
    return model.only(f"heads.{task}", f"decoders.{task}")


def without(head: Params, update: Params) -> Params:
    """A head after subtracting its part of an update."""
    return head - Params({name: update[name] for name in head})


def note_by_task(clients: Clients, name: str, replies: Replies, key: str) -> None:
    """Keeps a number per client and task in the history."""
    for task in sorted({task for reply in replies.values() for task in reply[key]}):
        values = {c: float(r[key][task]) for c, r in replies.items() if task in r[key]}
        clients.note(name, values, part=task)
