"""The runs a page is about, grouped by algorithm."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from consort.report.drawing import colour
from consort.results.result import Result
from consort.results.statistics import Summary, summarise
from consort.results.table import by_algorithm


@dataclass(frozen=True)
class Study:
    """One run or several: algorithms and seeds."""

    groups: Mapping[str, Sequence[Result]]

    @classmethod
    def of(cls, results: Sequence[Result]) -> Study:
        """Groups the runs by algorithm."""
        return cls(by_algorithm(results))

    @property
    def runs(self) -> list[Result]:
        """All runs, by algorithm."""
        return [run for runs in self.groups.values() for run in runs]

    @property
    def first(self) -> Result:
        """The run whose federation is shown."""
        return self.runs[0]

    @property
    def one_algorithm(self) -> bool:
        """Whether there is nothing to compare."""
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
        """The colour of every algorithm, the same in all pictures."""
        return {algorithm: colour(place) for place, algorithm in enumerate(self.groups)}

    def over_seeds(self, algorithm: str, measure: Callable[[Result], float]) -> Summary:
        """One number of an algorithm."""
        return summarise(list(map(measure, self.groups[algorithm])))
