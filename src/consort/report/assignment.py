"""Which client uses which of several models, if the run recorded it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from consort.report.numbers import natural
from consort.results.result import Result
from consort.results.table import by_algorithm

CHOSEN, MODEL_WEIGHT = "chosen_model", "model_weight"


@dataclass(frozen=True)
class Assignment:
    """The model of every client in every evaluated round."""

    rounds: Mapping[int, Mapping[str, str]]
    models: Sequence[str]
    """All models, chosen or not."""

    @classmethod
    def of(cls, run: Result) -> Assignment | None:
        """The choices of the clients of a run; `None` if they were not recorded."""
        noted = run.notes(CHOSEN).get("", {})
        rounds = {
            round_: {client: f"{number:g}" for client, number in clients.items() if client}
            for round_, clients in sorted(noted.items())
        }
        chosen = {model for clients in rounds.values() for model in clients.values()}
        weighed = run.notes(MODEL_WEIGHT).keys() - {""}
        return cls(rounds, sorted(chosen | weighed, key=natural)) if chosen else None

    @property
    def last(self) -> Mapping[str, str]:
        """The model of every client in the last evaluated round."""
        return self.rounds[max(self.rounds)]

    @property
    def in_use(self) -> set[str]:
        """The models that at least one client chose in the last round."""
        return set(self.last.values())

    @property
    def leaves_models_idle(self) -> bool:
        """Whether all clients chose the same model although there are several."""
        return len(self.in_use) == 1 < len(self.models)

    @property
    def clients(self) -> list[str]:
        """All clients, sorted by their model in the last round."""
        everybody = {client for clients in self.rounds.values() for client in clients}
        return sorted(everybody, key=lambda c: (natural(self.last.get(c, "")), natural(c)))

    def __str__(self) -> str:
        if self.leaves_models_idle:
            (model,) = self.in_use
            return f"all clients chose model {model}: the other models are not used"
        return f"{len(self.in_use)} of {len(self.models)} models in use"


def idle_models(results: Sequence[Result]) -> list[str]:
    """Warnings about algorithms in whose runs all clients chose the same of several models.

    Args:
        results: The runs.

    Returns:
        One sentence for each such algorithm.
    """
    sentences = []
    for algorithm, runs in by_algorithm(results).items():
        found = ((run.seed, Assignment.of(run)) for run in runs)
        seeds = [str(seed) for seed, choice in found if choice and choice.leaves_models_idle]
        if seeds:
            which = f"seed{'s' if len(seeds) > 1 else ''} {', '.join(seeds)}"
            sentences.append(
                f"{algorithm}, {which}: all clients chose the same model in the last round, "
                "the other models are not used"
            )
    return sentences
