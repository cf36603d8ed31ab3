"""Several runs side by side: which folders hold them, and what claims they bear out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from consort.errors import UsageError
from consort.experiment.recipe import Recipe
from consort.results.claims import Claim, Verdict
from consort.results.claims.comparison import Measured, Values
from consort.results.claims.no_task_worse import EACH_TASK
from consort.results.gains import DELTA_M, gains, upward_scores
from consort.results.result import Result


def runs_below(folder: Path) -> list[Path]:
    """The folder itself if it holds a run, else all runs somewhere below it."""
    found = sorted({path.parent for path in folder.rglob("run.json")})
    if not found:
        raise UsageError(f"{folder} holds no run: there is no run.json in it or below it")
    return found


def judge(recipe: Recipe, folders: Sequence[Path]) -> list[Verdict]:
    """Every claim of a recipe against the runs in these folders."""
    if not recipe.claims:
        return []
    results = [Result.load(folder) for folder in folders]
    names = sorted({name for result in results for name in result.metric_names()} | {DELTA_M})
    values: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    for result in results:
        for name in result.metric_names():
            values[name, result.algorithm][result.seed] = result.value(name)
    for (algorithm, seed), gain in gains(results).items():
        values[DELTA_M, algorithm][seed] = gain
    claims = [Claim.parse(text, list(recipe.algorithms), names) for text in recipe.claims]
    measured = Measured(values, _by_task(results))
    return [claim.judge(measured) for claim in claims]


def _by_task(results: Sequence[Result]) -> dict[str, Values]:
    tasks: dict[str, dict[tuple[str, str], dict[int, float]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for result in results:
        for whose, score in upward_scores(result).items():
            tasks[" ".join(whose)][EACH_TASK, result.algorithm][result.seed] = score
    return dict(tasks)
