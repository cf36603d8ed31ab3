"""Unlike encoders under common heads, which travel in eight bits and learn from forgeries.

Our own variation of FedMH. Every client trains the common heads on an encoder of its own, in steps
with one backward pass; forgeries teach the head that names users whom they are not from. What
changed in the heads is averaged. The recipe fedmh/ablation runs it without each of these ideas.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from consort.aggregation.eight_bits import Short, restore, shorten
from consort.algorithms.fedmh import note_by_task
from consort.core.algorithm import Algorithm, Clients, on_client
from consort.core.bounds import NotNegative
from consort.core.messages import Payload, Replies
from consort.core.params import Params, mean
from consort.core.roster import Roster
from consort.domains.signatures.tasks import Identification, imitation_loss
from consort.errors import NoReplies
from consort.tasks import Task
from consort.training.client import Client
from consort.training.local import LocalTraining
from consort.training.task_weighting import TaskSteps, Weighting

MODEL, UNSENT = "model", "unsent"


@dataclass(frozen=True)
class Server:
    """The common heads, unrounded."""

    heads: Params


@dataclass(frozen=True)
class FedMHPlus(Algorithm[Server]):
    """Common heads in eight bits on encoders that stay at home, taught by forgeries too."""

    reports: ClassVar[str] = "personal"
    private: ClassVar[tuple[str, ...]] = ("encoder",)

    local: LocalTraining = LocalTraining()
    weighting: Weighting = "sum"
    """How the gradients of the tasks are combined."""
    imitation: NotNegative = 1.0
    """Weight of the loss of taking a forgery for the user it imitates."""
    eight_bits: bool = True
    """Whether heads travel as whole numbers of eight bits; what an update lacks is sent later."""
    share: bool = True
    """Whether clients use the common heads, or go on with their own."""

    def start(self, roster: Roster) -> Server:
        """The common initial heads; encoders are their clients' own affair."""
        return Server(roster.shared("heads", "decoders"))

    def round(self, server: Server, clients: Clients) -> Server:
        """Everybody trains; the heads move by the mean of what changed in them."""
        replies = clients.ask(self.train, heads=self.sent(server.heads))
        if not replies:
            raise NoReplies("no client trained")
        note_by_task(clients, "task_weight", replies, "weights")
        updates = [self.received(update) for update in replies.each("update").values()]
        return Server(server.heads + mean(updates, list(replies.each("examples").values())))

    @on_client
    def train(self, client: Client, heads: Short | Params) -> Payload:
        """Local epochs of the own encoder and the common heads together."""
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
        """A task's own loss; where users are named, forgeries count too."""
        own = task.loss(output, target)
        if not (self.imitation and isinstance(task, Identification)):
            return own
        return own + self.imitation * imitation_loss(output, target)

    def sent(self, heads: Params) -> Short | Params:
        """Heads, or what changed in them, as they travel."""
        return shorten(heads) if self.eight_bits else heads

    def received(self, heads: Short | Params) -> Params:
        """The same after the journey."""
        return heads if isinstance(heads, Params) else restore(heads)

    def install(self, client: Client, heads: Params) -> None:
        """The common heads on this client's own encoder."""
        first = MODEL not in client.state
        client.recall(MODEL)
        if self.share or first:
            heads.load_into(client.model)

    def evaluate(self, server: Server, clients: Clients) -> Replies:
        """The common heads on each client's own encoder."""
        return clients.ask(self.test, heads=self.sent(server.heads))

    @on_client
    def test(self, client: Client, heads: Short | Params) -> Payload:
        """Scores of the own encoder under the common heads."""
        self.install(client, self.received(heads))
        return {"personal": client.score()}
