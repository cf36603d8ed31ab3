"""Heterogeneous encoders with shared head updates, applied where they improve all tasks (FedMH).

FedMH: Federated Learning with Multi-Task Head for Heterogeneous Models in Offline Signature
Verification (authors not named), Algorithm 1.

Every local step follows the shortest convex combination of the tasks' gradients (Equations 6 and
7). The server sums up the updates g of the heads, client after client, to G^(m) (Equation 8). Every
client searches one m per task, among the candidates of Equations 10 and 11, for which subtracting
G^(m) from its heads is a Pareto improvement (Equation 12 and those after it).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate
from typing import ClassVar, Literal

import torch

from consort.aggregation.pareto import Choice, all_choices, published_choices, sum_if_improved
from consort.algorithms._own_model import MODEL, OwnModel
from consort.algorithms._per_task import note_by_task
from consort.core.algorithm import Algorithm, Clients, on_client
from consort.core.bounds import NonNegativeFloat
from consort.core.contract import Model, Number, Whole
from consort.core.contract_groups import ByTask
from consort.core.messages import Payload
from consort.core.params import Params
from consort.core.roster import Roster
from consort.errors import NoReplies
from consort.training.client import Client
from consort.training.local import LocalTraining
from consort.training.objectives import features_of
from consort.training.task_weighting import TaskSteps, Weighting

Losses = Callable[[Choice], Iterable[float]]
"""The loss of every task if its head takes over G^(m); m = -1 stands for the head as it is."""


@dataclass(frozen=True)
class Server:
    """Nothing: only clients keep state."""


@dataclass(frozen=True)
class FedMH(OwnModel, Algorithm[Server]):
    """Two heads on any encoder: min-norm steps, and a search among sums of head updates."""

    reports: ClassVar[str] = "personal"
    private: ClassVar[tuple[str, ...]] = ("encoder",)

    local: LocalTraining = LocalTraining()
    weighting: Weighting = "exact"
    """What the weights of the tasks are computed from, see `TaskSteps`."""
    one_by_one: bool = False
    """Whether tasks are trained one after the other, the last one first, as in Figure 5."""
    search: Literal["published", "all", "none"] = "published"
    """The candidates: those of Equation 10, all combinations, or none."""
    accept: Literal["first", "best"] = "first"
    """Whether the first improvement is taken, or the one with the smallest sum of losses."""
    significance: NonNegativeFloat = 0.01
    """The share by which at least one loss must fall, the paper's vartheta."""
    first_prefix: Literal[0, 1] = 0
    """The smallest m that all tasks take together: 1 as printed in Equation 11, 0 as the costs in
    Table 12 imply."""

    def start(self, roster: Roster) -> Server:
        """All clients must have the same heads; their encoders may differ."""
        roster.shared("heads", "decoders")
        return Server()

    def round(self, server: Server, clients: Clients) -> Server:
        """Clients train; the server computes G^(m); clients search and take over updates."""
        replies = clients.ask(self.train)
        if not replies:
            raise NoReplies("no client trained")
        note_by_task(clients, "task_weight", replies, "weights")
        if self.search != "none":
            G = list(accumulate(replies.each("update").values()))
            taken = clients.among(replies).ask(self.take_over, sums=G)
            note_by_task(clients, "updates_taken", taken, "taken")
        return server

    @on_client(update=Model(without=("encoder",)), weights=ByTask(Number(0, 1e30)))
    def train(self, client: Client) -> Payload:
        """Local epochs; the answer is g, the heads before training minus those after it."""
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

    @on_client(taken=lambda _, sent: ByTask(Whole(-1, len(sent["sums"]) - 1)))
    def take_over(self, client: Client, sums: list[Params]) -> Payload:
        """Subtracts from each head the sum G^(m) that the search found, if any."""
        client.recall(MODEL)
        tasks = list(client.tasks)
        found = self.search_for(len(sums), len(tasks), self.losses(client, sums))
        if found is not None:
            model: Params = client.state[MODEL]
            for task, prefix in zip(tasks, found, strict=True):
                model = model | head_after(model, sums, task, prefix)
            client.state[MODEL] = model
        taken = [-1] * len(tasks) if found is None else found
        return {"taken": dict(zip(tasks, taken, strict=True))}

    def search_for(self, prefixes: int, tasks: int, losses: Losses) -> Choice | None:
        """One m per task that improves the losses, or None."""
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
        """Losses on all training data, in evaluation mode.

        Features are computed once for the whole search. Every loss depends on one head alone, so it
        is computed once too, when it is first needed.
        """
        heads = client.state[MODEL].without("encoder")
        seen = features_of(client)

        @cache
        @torch.inference_mode()
        def loss(task: str, prefix: int) -> float:
            head_after(heads, sums, task, prefix).load_into(client.model)
            output = client.model.output(task, seen.tensor)
            return client.tasks[task].loss(output, seen.targets[task]).item()

        return lambda choice: map(loss, client.tasks, choice)


def head_after(model: Params, sums: list[Params], task: str, prefix: int) -> Params:
    """One task's head and decoder minus G^(m), where m is `prefix`."""
    head = model.only(f"heads.{task}", f"decoders.{task}")
    if prefix < 0:
        return head
    return head - Params({name: sums[prefix][name] for name in head})
