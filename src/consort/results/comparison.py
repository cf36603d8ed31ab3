"""Several runs side by side, and which claims they bear out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from consort.results.claims import Claim, Verdict
from consort.results.claims.comparison import Measured, Values
from consort.results.claims.no_task_worse import EACH_TASK
from consort.results.gains import ALONE, DELTA_M, gain
from consort.results.records import Record
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
    return judge_records(claims, algorithms, [Record.of(Result.load(f)) for f in folders])


def judge_records(
    claims: Sequence[str], algorithms: Sequence[str], records: Sequence[Record]
) -> list[Verdict]:
    """Judges claims by what runs came to: see `judge`.

    Args:
        claims: The claims as a recipe has them.
        algorithms: The names of all algorithms that the claims may mean.
        records: What each run came to.
    """
    values: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    for record in records:
        for name, value in record.values.items():
            values[name, record.origin.algorithm][record.origin.seed] = value
    for (algorithm, seed), found in gains(records).items():
        values[DELTA_M, algorithm][seed] = found
    names = sorted({name for name, _ in values} | {DELTA_M})
    measured = Measured(values, _by_task(records))
    return [Claim.parse(text, algorithms, names).judge(measured) for text in claims]


def gains(records: Sequence[Record]) -> dict[tuple[str, int], float]:
    """Δm in percent by algorithm and seed, where a run of `local_only` with that seed is there.

    Args:
        records: What each run came to.
    """
    alone = {r.origin.seed: r.tasks for r in records if r.origin.kind == ALONE}
    return {
        (record.origin.algorithm, record.origin.seed): gain(
            {task: score.value for task, score in record.tasks.items()},
            {task: score.value for task, score in alone[record.origin.seed].items()},
            {task: score.higher_is_better for task, score in record.tasks.items()},
        )
        for record in records
        if record.origin.seed in alone
    }


def _by_task(records: Sequence[Record]) -> dict[str, Values]:
    """By task of a group: its score, with its sign changed where lower is better."""
    tasks: dict[str, dict[tuple[str, str], dict[int, float]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for record in records:
        for task, (value, higher) in record.tasks.items():
            upward = value if higher else -value
            tasks[task][EACH_TASK, record.origin.algorithm][record.origin.seed] = upward
    return dict(tasks)
