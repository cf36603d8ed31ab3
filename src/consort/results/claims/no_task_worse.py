"""That no task is worse with one algorithm than with another, by more than chance explains."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from consort.results.claims.comparison import (
    Comparison,
    Finding,
    Measured,
    Outcome,
    Undecidable,
    Values,
    weakest,
)
from consort.results.summary import Summary, summarise

EACH_TASK = "each task"
STANDARD_ERROR = "standard error"
_EXACTLY_ONE = 1 + 1e-9
"""Where all seeds but one are equal, the mean is one standard error: last bits do not decide."""


@dataclass(frozen=True)
class NoTaskWorse(Comparison):
    """That every task's `larger` falls short of its `smaller` by one standard error at most."""

    def judge(self, measured: Measured) -> Finding:
        """Decides task by task from paired seeds; the task that fares worst is told."""
        if not measured.tasks:
            return Finding("undecided", -math.inf, self._about("no task was measured"))
        return weakest([self._judge(task, scores) for task, scores in measured.tasks.items()])

    def _judge(self, task: str, scores: Values) -> Finding:
        try:
            margins = list(self._margins(scores))
        except Undecidable as reason:
            return Finding("undecided", -math.inf, self._about(f"{task}: {reason}"))
        return _finding(margins, self._about(task))


def _finding(margins: Sequence[float], task: str) -> Finding:
    summary = summarise(margins)
    margin = f"{task}: margin {summary.mean:+.4g}"
    if summary.n == 1:
        reason = f"{margin} with one seed; more seeds are needed to decide"
        return Finding("undecided", summary.mean, reason)
    outcome: Outcome = "holds" if summary.mean >= -summary.error * _EXACTLY_ONE else "fails"
    detail = f"{margin} with a standard error of {summary.error:.4g} over {summary.n} seeds"
    return Finding(outcome, _in_errors(summary), detail)


def _in_errors(summary: Summary) -> float:
    """The mean in standard errors: tasks have units of their own."""
    if summary.error:
        return summary.mean / summary.error
    return math.copysign(math.inf, summary.mean) if summary.mean else 0.0
