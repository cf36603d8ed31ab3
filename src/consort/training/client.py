"""What a client method sees: one client, its model, its data, its memory."""

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
"""Is shown every model that a client scores, as it is then, and its scores."""


@dataclass
class Client:
    """One client during one call.

    At the start of every call `model` is as it was built: with the initial weights of its
    architecture (and this client's own BatchNorm statistics, where they are local), in training
    mode, without gradients, whatever was called before. What must outlive the call goes into
    `state` or into the answer.
    """

    id: str
    model: MultiTaskModel
    tasks: dict[str, Task]
    data: Splits
    state: State
    generator: Generator
    round: int
    rounds: int
    extras: tuple[EvaluationExtra, ...] = ()
    witness: Witness | None = None
    steps: StepRule | None = None
    """How local training takes its steps, if not in the ordinary way."""
    scored: bool = field(default=False, init=False)
    """Whether `score` was called."""

    @property
    def examples(self) -> int:
        """How many examples this client trains on."""
        return len(self.data.train)

    @property
    def companion(self) -> MultiTaskModel:
        """The model beside the own one, in algorithms that ask for one."""
        if self.model.companion is None:
            raise Failure("the models have no companion: the algorithm has no `companion`")
        return self.model.companion

    def recall(self, key: str) -> None:
        """Loads the parameters remembered under a key into the model, if there are any yet."""
        if key in self.state:
            self.state[key].load_into(self.model, whole=True)

    @contextmanager
    def beside(self, key: str) -> Iterator[None]:
        """For a while another model in the place of the own one: what was kept under a key, if any.

        Each has BatchNorm statistics of its own, also where these do not travel.
        """
        own = Params.of(self.model, whole=True)
        self.recall(key)
        yield
        own.load_into(self.model, whole=True)

    def keep(self, key: str) -> None:
        """Remembers the model as it is, with its statistics, for `beside` and `recall`."""
        self.state[key] = Params.of(self.model, whole=True)

    def score(self, model: MultiTaskModel | None = None) -> Payload:
        """The metrics of the model (or of another) as it is now, on validation and test data."""
        self.scored = True
        chosen = model or self.model
        scores = score(chosen, self.tasks, self.data)
        for extra in self.extras:
            last = self.round == self.rounds
            scores = extra.added_to(scores, chosen, self.data, self.id, last)
        if self.witness:
            self.witness(chosen, scores)
        return scores
