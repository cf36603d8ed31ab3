"""Heterogeneous encoders with common heads, sent in eight bits and trained on imitations as well.

Our variation of FedMH (see `fedmh`). It differs in these ways, each of which an option changes, as
the recipe fedmh/ablation does:

- `share`: heads are averaged, in the place of a search among sums of updates.
- `weighting`: a step has one backward pass.
- `imitation`: tasks that know imitations, such as forgeries of a user's signature, learn that they
  are not the real thing.
- `eight_bits`: heads travel as integers of eight bits, with error feedback.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from consort.aggregation.eight_bits import Short, Shortened, restore, shorten
from consort.algorithms._own_model import MODEL
from consort.algorithms._per_task import note_by_task
from consort.core.algorithm import Algorithm, Clients, on_client
from consort.core.bounds import NonNegativeFloat
from consort.core.contract import Count, Entry, Model, Number
from consort.core.contract_groups import ByTask
from consort.core.messages import Payload, Replies
from consort.core.params import Params, mean
from consort.core.roster import Roster
from consort.errors import NoReplies
from consort.tasks import Imitated, Task
from consort.training.client import Client
from consort.training.local import LocalTraining
from consort.training.task_weighting import TaskSteps, Weighting

UNSENT = "unsent"


@dataclass(frozen=True)
class Server:
    """The common heads, not rounded."""

    heads: Params


@dataclass(frozen=True)
class FedMHPlus(Algorithm[Server]):
    """Common heads in eight bits on private encoders, trained on imitations as well."""

    reports: ClassVar[str] = "personal"
    private: ClassVar[tuple[str, ...]] = ("encoder",)

    local: LocalTraining = LocalTraining()
    weighting: Weighting = "sum"
    """How the gradients of the tasks are combined, see `TaskSteps`."""
    imitation: NonNegativeFloat = 1.0
    """Weight of a task's `imitation_loss`, where it has one."""
    eight_bits: bool = True
    """Whether heads travel as integers of eight bits; rounding errors go into the next update."""
    share: bool = True
    """Whether clients use the common heads, or continue with their own."""

    def start(self, roster: Roster) -> Server:
        """The common initial heads; encoders may differ."""
        return Server(roster.shared("heads", "decoders"))

    def round(self, server: Server, clients: Clients) -> Server:
        """All clients train; the heads move by the mean of their updates, weighted by examples."""
        replies = clients.ask(self.train, heads=self.sent(server.heads))
        if not replies:
            raise NoReplies("no client trained")
        note_by_task(clients, "task_weight", replies, "weights")
        updates = [self.received(update) for update in replies.each("update").values()]
        return Server(server.heads + mean(updates, list(replies.each("examples").values())))

    @on_client(
        update=lambda self, _: self.travelling, weights=ByTask(Number(0, 1e30)), examples=Count()
    )
    def train(self, client: Client, heads: Short | Params) -> Payload:
        """Local epochs of the client's own encoder together with the common heads."""
        common = self.received(heads)
        self.install(client, common)
        steps = TaskSteps(self.weighting, self.loss)
        self.local.run(client, objective=steps.losses, gradients=steps.gradients)
        client.state[MODEL] = Params.of(client.model)
        change = client.state[MODEL].without("encoder") - common
        update = change + client.state.get(UNSENT, change.zeros())
        sent = self.sent(update)
        client.state[UNSENT] = update - self.received(sent)
        return {"update": sent, "weights": steps.mean_weights(), "examples": client.examples}

    def loss(self, task: Task, output: Tensor, target: Tensor) -> Tensor:
        """A task's loss, plus that of imitations where the task knows any."""
        own = task.loss(output, target)
        if not (self.imitation and isinstance(task, Imitated)):
            return own
        return own + self.imitation * task.imitation_loss(output, target)

    @property
    def travelling(self) -> Entry:
        """What clients answer: heads or their update, see `sent`."""
        heads = Model(without=("encoder",))
        return Shortened(heads) if self.eight_bits else heads

    def sent(self, heads: Params) -> Short | Params:
        """Heads, or their update, as they travel."""
        return shorten(heads) if self.eight_bits else heads

    def received(self, heads: Short | Params) -> Params:
        """The same as they are received."""
        return heads if isinstance(heads, Params) else restore(heads)

    def install(self, client: Client, heads: Params) -> None:
        """Loads the client's own encoder and the common heads."""
        first = MODEL not in client.state
        client.recall(MODEL)
        if self.share or first:
            heads.load_into(client.model)

    def evaluate(self, server: Server, clients: Clients) -> Replies:
        """The common heads on every client's own encoder."""
        return clients.ask(self.test, heads=self.sent(server.heads))

    @on_client()
    def test(self, client: Client, heads: Short | Params) -> Payload:
        """Scores of the client's own encoder with the common heads."""
        self.install(client, self.received(heads))
        return {"personal": client.score()}
