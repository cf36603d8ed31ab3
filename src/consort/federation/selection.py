"""Which clients are selected for a round: by chance, by examples, or by their losses.

A selection is a function of `Candidates`. It takes randomness from their generator only, so that
runs are the same on every engine and after every interruption.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass
from typing import Annotated, Any, ClassVar, Protocol

import torch
from annotated_types import Ge
from pydantic import Strict
from torch import Generator

from consort.core.bounds import Probability
from consort.core.plugins import find
from consort.core.registry import did_you_mean
from consort.core.row import Row
from consort.core.validation import checked
from consort.errors import UsageError
from consort.federation.participation import round_half_up


@dataclass
class Reports:
    """What clients have reported in earlier rounds."""

    losses: dict[str, float] = field(default_factory=dict)
    """The loss on validation data in the last evaluation, averaged over the tasks, by client."""
    rounds: dict[str, int] = field(default_factory=dict)
    """The last round in which a client was trained, by client."""
    _of_tasks: dict[str, dict[str, float]] = field(default_factory=dict, repr=False)

    def add(self, rows: Iterable[Row], model: str) -> None:
        """Takes notice of what was measured.

        Args:
            rows: Rows of the history, in order.
            model: The model whose losses count: the one that the algorithm reports.
        """
        for row in rows:
            if (row.metric, row.split, row.model) == ("loss", "validation", model):
                tasks = self._of_tasks.setdefault(row.client, {})
                tasks[row.task] = row.value
                self.losses[row.client] = sum(tasks.values()) / len(tasks)
            elif row.metric == "seconds" and row.client:
                self.rounds[row.client] = row.round


@dataclass(frozen=True)
class Candidates:
    """The clients of a run, from which those of a round are selected.

    Examples:
        A selection of your own is a function:

        >>> from consort import Candidates, Schedule
        >>> def those_who_waited_longest(candidates: Candidates) -> list[str]:
        ...     waiting = sorted(candidates.ids, key=lambda c: candidates.rounds.get(c, 0))
        ...     return waiting[: candidates.count]
        >>> schedule = Schedule(participation=0.1, selection=those_who_waited_longest)
    """

    ids: tuple[str, ...]
    """The names of all clients, in order."""
    count: int
    """How many of them shall take part, after the share in `run.participation`."""
    round: int
    """The round, counted from 1."""
    generator: Generator
    """The only permitted source of randomness."""
    examples: Callable[[str], int]
    """Tells how many training examples a client has."""
    losses: Mapping[str, float]
    """The last known validation loss of each client that has reported one."""
    rounds: Mapping[str, int]
    """The last round in which each client was trained; those that never were are missing."""

    def draw(self, weights: Sequence[float], count: int) -> list[int]:
        """Draws positions without replacement.

        Args:
            weights: A weight for every position; those of weight 0 come last.
            count: How many are drawn.
        """
        chances = torch.tensor(weights, dtype=torch.float64).clamp(min=1e-12)
        if not len(chances):
            return []
        some = min(count, len(weights))
        return [int(place) for place in torch.multinomial(chances, some, generator=self.generator)]


class Selection(Protocol):
    """Selects the clients of a round."""

    def __call__(self, candidates: Candidates) -> Iterable[str]:
        """Selects clients; called before every round.

        Args:
            candidates: All clients, and what is known about them.

        Returns:
            The names of some of them, at least one; their order does not matter.
        """
        ...


@dataclass(frozen=True)
class Uniform:
    """Every client with the same probability: the default."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    def __call__(self, candidates: Candidates) -> list[str]:
        """Draws without replacement."""
        order = torch.randperm(len(candidates.ids), generator=candidates.generator)
        return [candidates.ids[place] for place in order[: candidates.count].tolist()]


@dataclass(frozen=True)
class Weighted:
    """Clients with more training examples more often."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    def __call__(self, candidates: Candidates) -> list[str]:
        """Draws without replacement, each time in proportion to the examples."""
        weights = [candidates.examples(client) for client in candidates.ids]
        return [candidates.ids[place] for place in candidates.draw(weights, candidates.count)]


@dataclass(frozen=True)
class PowerOfChoice:
    """Draws more candidates than needed, by examples, and takes those with the largest losses.

    Cho, Wang and Joshi: Towards Understanding Biased Client Selection in Federated Learning,
    AISTATS 2022, in the variant rpow-d, which uses the losses that are known already.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}
    by_losses: ClassVar[bool] = True

    candidates: Annotated[float, Strict(), Ge(1)] = 2.0
    """The paper's d: so many candidates are drawn for each client that takes part."""

    def __call__(self, candidates: Candidates) -> list[str]:
        """Draws candidates and takes those with the largest losses; unknown ones come first."""
        several = round_half_up(self.candidates * candidates.count)
        weights = [candidates.examples(client) for client in candidates.ids]
        drawn = [candidates.ids[place] for place in candidates.draw(weights, several)]
        drawn.sort(key=lambda client: -candidates.losses.get(client, math.inf))
        return drawn[: candidates.count]


@dataclass(frozen=True)
class Oort:
    """Prefers clients with many examples and large losses, and tries others from time to time.

    After Lai, Zhu, Madhyastha and Chowdhury: Oort: Efficient Federated Learning via Guided
    Participant Selection, OSDI 2021, Algorithm 1, without the utility of fast clients, since time
    is not a function of the seed.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}
    by_losses: ClassVar[bool] = True

    exploration: Probability = 0.9
    """The share of clients that have not been trained yet, in the first round."""
    decay: Probability = 0.98
    """The factor of that share per round."""
    least: Probability = 0.2
    """The smallest share."""

    def __call__(self, candidates: Candidates) -> list[str]:
        """Draws new clients by chance, and known ones by their utility."""
        known = [c for c in candidates.ids if c in candidates.rounds and c in candidates.losses]
        new = [client for client in candidates.ids if client not in known]
        share = max(self.exploration * self.decay ** (candidates.round - 1), self.least)
        wanted = max(round_half_up(share * candidates.count), candidates.count - len(known))
        chosen = [new[place] for place in candidates.draw([1.0] * len(new), wanted)]
        left = candidates.count - len(chosen)
        utility = self.utility(candidates, known)
        cutoff = 0.95 * sorted(utility, reverse=True)[left - 1] if left else math.inf
        places = [place for place, value in enumerate(utility) if value >= cutoff]
        drawn = candidates.draw([utility[place] for place in places], left)
        return chosen + [known[places[place]] for place in drawn]

    def utility(self, candidates: Candidates, known: Sequence[str]) -> list[float]:
        """n_i loss_i, scaled to at most 1, plus sqrt(0.1 log R / L_i), L_i the last round of i."""
        value = [candidates.examples(c) * max(candidates.losses[c], 0.0) for c in known]
        largest = max(value, default=0.0) or 1.0
        waited = [0.1 * math.log(candidates.round) / candidates.rounds[c] for c in known]
        return [v / largest + math.sqrt(w) for v, w in zip(value, waited, strict=True)]


SELECTIONS: dict[str, type] = {
    "uniform": Uniform,
    "weighted": Weighted,
    "power_of_choice": PowerOfChoice,
    "oort": Oort,
}
"""The selections by their names in recipes."""


def selection_of(chosen: Any) -> Selection | None:
    """The selection that a recipe or a user asks for.

    Args:
        chosen: None, the name of a selection, a table with its `name` and its options, or a
            selection. A name can also be the place of one, such as `file.py:Class`.

    Raises:
        UsageError: If there is no such selection, or an option is wrong.
    """
    if chosen is None:
        return None
    selection: Selection
    if callable(chosen):
        selection = chosen
        return selection
    options = {"name": chosen} if isinstance(chosen, str) else dict(chosen)
    name = str(options.pop("name", ""))
    if ":" in name:
        found = find("algorithms", name)
        selection = checked(found, options, "run.selection") if isinstance(found, type) else found
        return selection
    if name not in SELECTIONS:
        raise UsageError(f"run.selection: there is no selection {did_you_mean(name, SELECTIONS)}")
    selection = checked(SELECTIONS[name], options, "run.selection")
    return selection


def table_of(chosen: Any) -> Any:
    """What `run.json` says about a selection, so that a run goes on with the same one."""
    if chosen is None or isinstance(chosen, str | Mapping):
        return chosen
    kind = type(chosen)
    names = {known: name for name, known in SELECTIONS.items()}
    name = names.get(kind, f"{kind.__module__}:{kind.__qualname__}")
    return {"name": name, **(asdict(chosen) if is_dataclass(kind) else {})}


def select(selection: Selection, candidates: Candidates) -> tuple[str, ...]:
    """The selected clients, in the order of all clients.

    Args:
        selection: The selection.
        candidates: The clients.

    Raises:
        UsageError: If it selects nobody, or a client that does not exist.
    """
    chosen = set(selection(candidates))
    strangers = sorted(chosen - set(candidates.ids))
    if strangers or not chosen:
        what = f"the unknown client {strangers[0]!r}" if strangers else "nobody"
        raise UsageError(
            f"the selection {type(selection).__name__} chose {what} in round {candidates.round}: "
            "return names from `candidates.ids`"
        )
    return tuple(client for client in candidates.ids if client in chosen)
