"""Tuning: equal budgets for every algorithm, chosen by validation data, confirmed by new seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from consort.core.files import write_file
from consort.core.registry import did_you_mean
from consort.errors import UsageError
from consort.experiment.comparing import run_folder
from consort.experiment.jobs import JobRunner, TuningJob
from consort.experiment.preflight import preflight
from consort.experiment.recipe import Recipe
from consort.experiment.run_folder import written_recipe
from consort.experiment.suggestions import suggestions
from consort.experiment.sweep import Point, Sweep, nested
from consort.experiment.tables import merged
from consort.experiment.trials import Trial, best_of, trials_table
from consort.results.result import NoResults, Result
from consort.results.summary import mean, summarise


@dataclass(frozen=True)
class Search:
    """All that is needed to try settings."""

    recipe: Recipe
    root: Path
    data: Path | None
    jobs: JobRunner
    told: Callable[[str], None] = lambda _: None
    """Is told how the search proceeds."""
    trials: list[Trial] = field(default_factory=list)
    """What was tried so far."""

    @property
    def sweep(self) -> Sweep:
        """The recipe's table.

        Raises:
            UsageError: It has none.
        """
        if self.recipe.sweep is None:
            raise UsageError("the recipe has no table [sweep]: it says which settings are tried")
        return self.recipe.sweep

    @cached_property
    def deciding(self) -> tuple[str, bool]:
        """The deciding metric, and whether higher is better; also refuses what cannot run.

        Raises:
            UsageError: A run cannot start, or the metric is not clear.
        """
        names = list(self.recipe.algorithms)
        assembly = preflight(self.recipe, names, self.sweep.seeds[0], self.data)
        tasks = assembly.description["tasks"].values()
        own = {str(task["metric"]): bool(task["higher_is_better"]) for task in tasks}
        if self.sweep.metric:
            if self.sweep.metric not in own:
                raise UsageError(f"sweep.metric: no metric {did_you_mean(self.sweep.metric, own)}")
            return self.sweep.metric, own[self.sweep.metric]
        if len(own) > 1:
            raise UsageError(f"sweep.metric: say which of {', '.join(own)} decides")
        return next(iter(own.items()))

    def go(self) -> dict[str, Trial]:
        """Tries all settings of all algorithms.

        Returns:
            The best setting of every algorithm, by validation data.

        Raises:
            UsageError: A setting cannot run, or the metric is not clear.
            Failure: All settings of an algorithm failed.
        """
        budget = self.sweep.budget(self.recipe.algorithms)
        for name in self.recipe.algorithms:
            for point in self.sweep.corners(name):
                with_point(self.recipe, name, point)
        metric, higher = self.deciding
        best = {}
        for name in self.recipe.algorithms:
            for tried in self._tried(name, budget, metric, higher):
                self.trials.append(tried)
                self.told(_sentence(tried, metric))
                self._write(metric, higher)
            best[name] = best_of([t for t in self.trials if t.algorithm == name], higher)
        return best

    def _tried(self, name: str, budget: int, metric: str, higher: bool) -> Iterator[Trial]:
        batches = suggestions(self.sweep, name, budget, higher)
        answer: list[float] | None = None
        while True:
            try:
                points = batches.send(answer)  # type: ignore[arg-type]
            except StopIteration:
                return
            trials = [Trial(name, point) for point in points]
            recipes = [with_point(self.recipe, name, trial.point) for trial in trials]
            done = [self._measured(t, metric, e) for t, e in self._run(trials, recipes)]
            yield from done
            answer = [t.validation.mean if t.validation else math.nan for t in done]

    def _run(
        self, trials: Sequence[Trial], recipes: Sequence[Recipe]
    ) -> Iterator[tuple[Trial, str]]:
        """Every trial with the first error of its runs; empty if all are finished."""
        seeds = self.sweep.seeds
        answers = self.jobs.run(
            [
                job_of(recipe, trial.algorithm, seed, self._folder(trial, seed), self.data)
                for trial, recipe in zip(trials, recipes, strict=True)
                for seed in seeds
            ]
        )
        for trial in trials:
            errors = [next(answers) for _ in seeds]
            yield trial, next(filter(None, errors), "")

    def _folder(self, trial: Trial, seed: int) -> Path:
        return run_folder(self.root / "search" / trial.algorithm, trial.name, seed)

    def _measured(self, trial: Trial, metric: str, error: str) -> Trial:
        if error:
            return Trial(trial.algorithm, trial.point, error=error)
        try:
            runs = [Result.load(self._folder(trial, seed)) for seed in self.sweep.seeds]
        except NoResults as missing:
            return Trial(trial.algorithm, trial.point, error=str(missing))
        scores = [mean(run.over_last_rounds(metric, "validation").values()) for run in runs]
        if not all(map(math.isfinite, scores)):
            return Trial(trial.algorithm, trial.point, error="no finite validation score")
        return Trial(
            trial.algorithm,
            trial.point,
            summarise(scores),
            mean(run.value("bytes") for run in runs),
            mean(run.value("seconds") for run in runs),
        )

    def _write(self, metric: str, higher: bool) -> None:
        text = trials_table(self.trials, metric, higher)
        write_file(self.root / "trials.csv", text.encode())


def job_of(recipe: Recipe, algorithm: str, seed: int, folder: Path, data: Path | None) -> TuningJob:
    """A run as plain values, which another process makes.

    Args:
        recipe: The experiment.
        algorithm: One of its algorithms.
        seed: The seed.
        folder: Where the run writes.
        data: The folder of real data sets.
    """
    return TuningJob(
        recipe=recipe.table,
        algorithm=algorithm,
        seed=seed,
        folder=str(folder.resolve()),
        data=str(data.resolve()) if data else None,
    )


def with_point(recipe: Recipe, algorithm: str, point: Point) -> Recipe:
    """The recipe with a setting of one of its algorithms, and without the search.

    Args:
        recipe: The recipe.
        algorithm: The name of the algorithm.
        point: The setting.

    Raises:
        UsageError: The algorithm has no such option, or the value is wrong.
    """
    return with_points(recipe, {algorithm: point})


def with_points(recipe: Recipe, points: Mapping[str, Point]) -> Recipe:
    """The recipe with settings of some of its algorithms, and without the search.

    Args:
        recipe: The recipe.
        points: The settings by algorithm.

    Raises:
        UsageError: An algorithm has no such option, or a value is wrong.
    """
    table = dict(recipe.table)
    table["algorithms"] = {
        name: merged(options, nested(points.get(name, {})))
        for name, options in table["algorithms"].items()
    }
    return written_recipe(table | {"sweep": None}, "[sweep]")


def _sentence(trial: Trial, metric: str) -> str:
    setting = ", ".join(f"{key} = {value}" for key, value in trial.point.items()) or "as it is"
    if trial.validation is None:
        return f"{trial.algorithm} ({setting}): failed: {trial.error}"
    return f"{trial.algorithm} ({setting}): validation {metric} {trial.validation.mean:.4f}"


def tuned_settings(best: Mapping[str, Trial]) -> dict[str, Any]:
    """The best settings, as tables of a recipe.

    Args:
        best: The best trial of every algorithm.
    """
    return {"algorithms": {name: nested(trial.point) for name, trial in best.items()}}
