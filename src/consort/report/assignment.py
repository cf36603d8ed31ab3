"""Which client uses which of several models, as far as a run noted it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from consort.report.numbers import natural
from consort.results.result import Result
from consort.results.table import by_algorithm

CHOSEN, MODEL_WEIGHT = "chosen_model", "model_weight"


@dataclass(frozen=True)
class Assignment:
    """The model of every client in every round with an evaluation."""

    rounds: Mapping[int, Mapping[str, str]]
    models: Sequence[str]
    """All models that are known of, chosen or not."""

    @classmethod
    def of(cls, run: Result) -> Assignment | None:
        """What the clients of a run chose, if that was noted."""
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
        """Every client's model in the last round with an evaluation."""
        return self.rounds[max(self.rounds)]

    @property
    def in_use(self) -> set[str]:
        """The models that somebody chose in the last round."""
        return set(self.last.values())

    @property
    def leaves_models_idle(self) -> bool:
        """Whether all clients chose one model although there are several."""
        return len(self.in_use) == 1 < len(self.models)

    @property
    def clients(self) -> list[str]:
        """All clients; those that share a model in the last round stand together."""
        everybody = {client for clients in self.rounds.values() for client in clients}
        return sorted(everybody, key=lambda c: (natural(self.last.get(c, "")), natural(c)))

    def __str__(self) -> str:
        if self.leaves_models_idle:
            (model,) = self.in_use
            return f"all clients chose model {model}: the other models are idle"
        return f"{len(self.in_use)} of {len(self.models)} models in use"


def idle_models(results: Sequence[Result]) -> list[str]:
    """A sentence for every algorithm with runs in which all clients chose one of several models."""
    sentences = []
    for algorithm, runs in by_algorithm(results).items():
        found = ((run.seed, Assignment.of(run)) for run in runs)
        seeds = [str(seed) for seed, choice in found if choice and choice.leaves_models_idle]
        if seeds:
            which = f"seed{'s' if len(seeds) > 1 else ''} {', '.join(seeds)}"
            sentences.append(
                f"{algorithm}, {which}: all clients chose the same model in the last round, "
                "the other models are idle"
            )
    return sentences
