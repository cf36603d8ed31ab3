"""The runs of a report, grouped by algorithm."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from consort.report.drawing import colour
from consort.results.result import Result
from consort.results.summary import Summary, summarise
from consort.results.table import by_algorithm


@dataclass(frozen=True)
class RunSet:
    """One or several runs, with different algorithms and seeds."""

    groups: Mapping[str, Sequence[Result]]

    @classmethod
    def of(cls, results: Sequence[Result]) -> RunSet:
        """Groups runs by algorithm."""
        return cls(by_algorithm(results))

    @property
    def runs(self) -> list[Result]:
        """All runs, in the order of the algorithms."""
        return [run for runs in self.groups.values() for run in runs]

    @property
    def first(self) -> Result:
        """The run whose federation the report shows."""
        return self.runs[0]

    @property
    def one_algorithm(self) -> bool:
        """Whether all runs have the same algorithm."""
        return len(self.groups) == 1

    @property
    def one_run(self) -> bool:
        """Whether there is a single run."""
        return len(self.runs) == 1

    @cached_property
    def tasks(self) -> dict[str, Mapping[str, Any]]:
        """The tasks of all runs."""
        tasks: dict[str, Mapping[str, Any]] = {}
        for run in self.runs:
            tasks |= run.tasks
        return tasks

    @cached_property
    def colours(self) -> dict[str, str]:
        """The colour of every algorithm, the same in all plots."""
        return {algorithm: colour(place) for place, algorithm in enumerate(self.groups)}

    def over_seeds(self, algorithm: str, measure: Callable[[Result], float]) -> Summary:
        """Summarises one number of an algorithm over its seeds.

        Args:
            algorithm: The name of the algorithm.
            measure: Takes the number from a run.
        """
        return summarise(list(map(measure, self.groups[algorithm])))
