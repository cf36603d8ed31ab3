"""Several runs side by side, and which claims they bear out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from consort.results.claims import Claim, Verdict
from consort.results.claims.comparison import Measured, Values
from consort.results.claims.no_task_worse import EACH_TASK
from consort.results.gains import DELTA_M, gains, upward_scores
from consort.results.result import Result


def judge(
    claims: Sequence[str], algorithms: Sequence[str], folders: Sequence[Path]
) -> list[Verdict]:
    """Judges claims by runs.

    Args:
        claims: The claims as a recipe has them.
        algorithms: The names of all algorithms that the claims may mean.
        folders: The folders of the runs.

    Returns:
        One verdict for each claim.

    Raises:
        UsageError: A claim cannot be read, or names what was not measured.
    """
    if not claims:
        return []
    results = [Result.load(folder) for folder in folders]
    names = sorted({name for result in results for name in result.metric_names()} | {DELTA_M})
    values: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    for result in results:
        for name in result.metric_names():
            values[name, result.algorithm][result.seed] = result.value(name)
    for (algorithm, seed), gain in gains(results).items():
        values[DELTA_M, algorithm][seed] = gain
    measured = Measured(values, _by_task(results))
    return [Claim.parse(text, algorithms, names).judge(measured) for text in claims]


def _by_task(results: Sequence[Result]) -> dict[str, Values]:
    tasks: dict[str, dict[tuple[str, str], dict[int, float]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for result in results:
        for whose, score in upward_scores(result).items():
            tasks[" ".join(whose)][EACH_TASK, result.algorithm][result.seed] = score
    return dict(tasks)
