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
from consort.core.algorithm import Algorithm, Clients, on_client
from consort.core.bounds import NotNegative
from consort.core.messages import Payload, Replies
from consort.core.params import Params
from consort.core.roster import Roster
from consort.errors import NoReplies
from consort.training.client import Client
from consort.training.local import LocalTraining
from consort.training.objectives import features_of, losses_of_features
from consort.training.task_weighting import TaskSteps, Weighting

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
    """Whether features are computed once for the whole search; else, as the paper does, once for
    every choice. It changes no result."""

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
        losses = cached_losses if self.cached else literal_losses
        found = self.look(len(sums), len(tasks), losses(client, sums))
        if found is not None:
            model: Params = client.state[MODEL]
            for task, prefix in zip(tasks, found, strict=True):
                model = model | head_after(model, sums, task, prefix)
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

    def evaluate(self, server: Server, clients: Clients) -> Replies:  # noqa: ARG002
        """Every client's own model."""
        return clients.ask(self.test)

    @on_client
    def test(self, client: Client) -> Payload:
        """Scores of the client's own model."""
        client.recall(MODEL)
        return {"personal": client.score()}


def literal_losses(client: Client, sums: list[Params]) -> Losses:
    """Every choice is a model of its own, which sees all training data."""
    heads = client.state[MODEL].without("encoder")

    @torch.inference_mode()
    def losses(choice: Choice) -> list[float]:
        for task, prefix in zip(client.tasks, choice, strict=True):
            head_after(heads, sums, task, prefix).load_into(client.model)
        found = losses_of_features(client, features_of(client))
        return [loss.item() for loss in found.values()]

    return losses


def cached_losses(client: Client, sums: list[Params]) -> Losses:
    """The same from features that are computed once. Every loss depends on one head alone, so it
    is computed only once too, when it is asked for."""
    heads = client.state[MODEL].without("encoder")
    seen = features_of(client)

    @cache
    @torch.inference_mode()
    def loss(task: str, prefix: int) -> float:
        head_after(heads, sums, task, prefix).load_into(client.model)
        output = client.model.output(task, seen.inputs)
        return client.tasks[task].loss(output, seen.targets[task]).item()

    return lambda choice: map(loss, client.tasks, choice)


def head_after(model: Params, sums: list[Params], task: str, prefix: int) -> Params:
    """One task's head and decoder after subtracting a prefix of updates."""
    head = model.only(f"heads.{task}", f"decoders.{task}")
    if prefix < 0:
        return head
    return head - Params({name: sums[prefix][name] for name in head})


def note_by_task(clients: Clients, name: str, replies: Replies, key: str) -> None:
    """Keeps a number per client and task in the history."""
    for task in sorted({task for reply in replies.values() for task in reply[key]}):
        values = {c: float(r[key][task]) for c, r in replies.items() if task in r[key]}
        clients.note(name, values, part=task)
