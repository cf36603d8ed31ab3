"""What a client method works with: one client, its model, its data and its state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from torch import Generator

from consort.core.messages import Payload, State
from consort.core.params import Params
from consort.data.examples import Splits
from consort.errors import Failure
from consort.models.multitask import MultiTaskModel
from consort.tasks import Task
from consort.training.evaluation import EvaluationExtra
from consort.training.scoring import score
from consort.training.steps import StepRule

Witness = Callable[[MultiTaskModel, Payload], None]
"""Called with every model that a client scores, and with its scores."""


@dataclass
class Client:
    """One client during one call.

    At the start of every call `model` is as it was built: with the initial weights of its
    architecture (and this client's own BatchNorm statistics, where they are local), in training
    mode, without gradients, whatever was called before. What must outlive the call goes into
    `state` or into the answer.

    Examples:
        >>> import torch
        >>> from torch import Generator
        >>> from consort import Classification, Client, Examples, MultiTaskModel, Splits
        >>> examples = Examples(torch.eye(4), {"place": torch.arange(4)})
        >>> splits = Splits(examples, examples, examples)
        >>> model = MultiTaskModel(torch.nn.Identity(), {"place": torch.nn.Linear(4, 4)})
        >>> tasks = {"place": Classification(4)}
        >>> client = Client("bank-1", model, tasks, splits, {}, Generator(), round=1, rounds=10)
        >>> client.examples
        4
        >>> client.state["calls"] = client.state.get("calls", 0) + 1
        >>> sorted(client.score())
        ['test', 'validation']
    """

    id: str
    """The client's name."""
    model: MultiTaskModel
    """The client's model."""
    tasks: dict[str, Task]
    """The client's tasks, by name."""
    data: Splits
    """The client's training, validation and test examples."""
    state: State
    """What the client remembers between calls."""
    generator: Generator
    """The source of randomness of this call."""
    round: int
    """The current round, counted from 1."""
    rounds: int
    """The number of rounds of the run."""
    extras: tuple[EvaluationExtra, ...] = ()
    """What `score` measures besides the metrics of the tasks."""
    witness: Witness | None = None
    """Called with every model that `score` scores, and with its scores."""
    steps: StepRule | None = None
    """Replaces the steps of local training, if given."""
    scored: bool = field(default=False, init=False)
    """Whether `score` was called."""
    trainings: int = field(default=0, init=False)
    """How often the model, or a part of it, was trained in this call."""

    @property
    def examples(self) -> int:
        """The number of training examples."""
        return len(self.data.train)

    @property
    def companion(self) -> MultiTaskModel:
        """The second model of the client, in algorithms that ask for one.

        Raises:
            Failure: If the algorithm defines no `companion`.
        """
        if self.model.companion is None:
            raise Failure("clients have no companion model: define `companion` in the algorithm")
        return self.model.companion

    def recall(self, key: str) -> None:
        """Loads the parameters stored in `state` under `key` into the model, if there are any."""
        if key in self.state:
            self.state[key].load_into(self.model, whole=True)

    @contextmanager
    def beside(self, key: str) -> Iterator[None]:
        """Replaces the parameters of the model within a `with` block, and restores them after it.

        BatchNorm statistics are replaced and restored too.

        Args:
            key: The entry of `state` with the other parameters, stored by `keep`; if there is
                none yet, the model stays as it is.
        """
        own = Params.of(self.model, whole=True)
        self.recall(key)
        yield
        own.load_into(self.model, whole=True)

    def keep(self, key: str) -> None:
        """Stores the model, with BatchNorm statistics, in `state` under `key`."""
        self.state[key] = Params.of(self.model, whole=True)

    def score(self, model: MultiTaskModel | None = None) -> Payload:
        """Evaluates a model on the client's validation and test data.

        Args:
            model: The model; by default the client's own.

        Returns:
            The scores by split and task, as `consort.training.scoring.score` returns them, with
            those of `extras`.
        """
        self.scored = True
        chosen = model or self.model
        scores = score(chosen, self.tasks, self.data)
        for extra in self.extras:
            last = self.round == self.rounds
            scores = extra.added_to(scores, chosen, self.data, self.id, last)
        if self.witness:
            self.witness(chosen, scores)
        return scores
