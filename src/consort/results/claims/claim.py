"""A line that a comparison of algorithms may confirm or refute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from consort.errors import UsageError
from consort.results.claims.comparison import Comparison, Measured, Outcome, weakest
from consort.results.claims.expressions import EACH_OTHER, measures_in
from consort.results.claims.reader import SHAPE, ClaimReader


@dataclass(frozen=True)
class Verdict:
    """What the measurements say about a claim, and why."""

    claim: str
    outcome: Outcome
    detail: str


@dataclass(frozen=True)
class Claim:
    """A text, and the comparisons that it says hold."""

    text: str
    comparisons: tuple[Comparison, ...]

    @classmethod
    def parse(cls, text: str, algorithms: Sequence[str], metrics: Sequence[str] = ()) -> Claim:
        """Reads a claim about these algorithms and metrics; before a run any metric will do."""
        try:
            comparison = ClaimReader(algorithms, metrics).comparison(text)
            return cls(text, _spelt_out(comparison, algorithms))
        except UsageError as problem:
            raise UsageError(f"claim `{text}`: {problem}") from None
        except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError):
            raise UsageError(f"claim `{text}` cannot be read: {SHAPE}") from None

    def judge(self, measured: Measured) -> Verdict:
        """Holds if every comparison holds, fails if any fails; the weakest one is told."""
        finding = weakest([comparison.judge(measured) for comparison in self.comparisons])
        return Verdict(self.text, finding.outcome, finding.detail)


def _spelt_out(comparison: Comparison, algorithms: Sequence[str]) -> tuple[Comparison, ...]:
    smaller, larger = (
        {measure.algorithm for measure in measures_in(side)}
        for side in (comparison.smaller, comparison.larger)
    )
    named = smaller | larger
    if not named:
        raise UsageError("it names no algorithm; write one as metric(algorithm)")
    if EACH_OTHER in smaller & larger:
        raise UsageError(f"`{EACH_OTHER}` can stand on one side only")
    if EACH_OTHER not in named:
        return (comparison,)
    rivals = [algorithm for algorithm in algorithms if algorithm not in named]
    if not rivals:
        raise UsageError(f"`{EACH_OTHER}` needs an algorithm in the comparison that it can mean")
    return tuple(comparison.against(rival) for rival in rivals)
