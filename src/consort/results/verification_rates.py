"""Error rates of score files: thresholds from development data, rates on evaluation data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from consort.metrics.biometric import Scores, equal_error_rate, equal_errors_of_users
from consort.metrics.intervals import (
    Interval,
    bootstrap_over_users,
    clopper_pearson,
    rate_over_users,
)
from consort.metrics.operating_points import EER, OPERATING_POINTS, fnmr_at_fmr, threshold_by
from consort.results.score_files import ScoreTable

THRESHOLDS = (EER, "FMR100", "FMR1000")
"""The rules by which thresholds are chosen on development data."""
_DRAWS = 200
"""Draws of users for rates whose threshold depends on the draw."""


@dataclass(frozen=True)
class Rate:
    """A share of wrong decisions, with two 95 % intervals."""

    wrong: int
    total: int
    clopper_pearson: Interval
    """As if all decisions were independent."""
    over_users: Interval | None
    """The bootstrap over users; none if there is only one."""

    @property
    def value(self) -> float:
        """The share."""
        return self.wrong / self.total


@dataclass(frozen=True)
class AtThreshold:
    """Decisions on evaluation data at a threshold that was chosen elsewhere."""

    rule: str
    kind: str
    """The impostors among which the threshold was chosen."""
    origin: str
    threshold: float
    fnmr: Rate
    fmr: Mapping[str, Rate]
    """By the kind of impostors."""


@dataclass(frozen=True)
class OwnCurve:
    """What the evaluation data's own error curve says; no threshold of it can be known in use."""

    eer: float
    eer_interval: Interval | None
    eer_of_users: float | None
    """With a threshold for each user; none if no user has both genuine and impostor scores."""
    points: Mapping[str, float]
    """FMR100, FMR1000 and ZeroFMR."""


def rates_at_thresholds(
    development: ScoreTable, tested: ScoreTable, origin: str
) -> list[AtThreshold]:
    """Error rates at the thresholds that development data choose.

    Args:
        development: The scores by which thresholds are chosen.
        tested: The scores on which errors are counted.
        origin: Where the development scores come from.
    """
    found = []
    for kind in development.kinds:
        for rule in THRESHOLDS:
            chosen = threshold_by(rule, development.scores(), development.scores(kind))
            fnmr = _rate(tested, None, chosen)
            fmr = {other: _rate(tested, other, chosen) for other in tested.kinds}
            found.append(AtThreshold(rule, kind, origin, chosen, fnmr, fmr))
    return found


def _rate(table: ScoreTable, kind: str | None, threshold: float) -> Rate:
    """The share of wrong decisions: genuine ones below the threshold, or others that reach it."""
    of_users = [(table.scores(kind, user) >= threshold) == bool(kind) for user in table.users]
    counts, totals = [int(np.sum(one)) for one in of_users], [len(one) for one in of_users]
    count, total = sum(counts), sum(totals)
    return Rate(count, total, clopper_pearson(count, total), rate_over_users(counts, totals))


def own_curve(table: ScoreTable, kind: str) -> OwnCurve:
    """The EER and the operating points of scores by themselves.

    Args:
        table: The scores.
        kind: The impostors.
    """
    genuine, forged = table.scores(), table.scores(kind)
    of_users = [(table.scores(None, user), table.scores(kind, user)) for user in table.users]
    whole = [pair for pair in of_users if pair[0].size and pair[1].size]
    return OwnCurve(
        equal_error_rate(genuine, forged),
        bootstrap_over_users(whole, _pooled_eer, draws=_DRAWS),
        equal_errors_of_users(whole).mean if whole else None,
        {name: fnmr_at_fmr(genuine, forged, fmr) for name, fmr in OPERATING_POINTS.items()},
    )


def _pooled_eer(users: list[tuple[Scores, Scores]]) -> float:
    genuine, forged = (np.concatenate(part) for part in zip(*users, strict=True))
    return equal_error_rate(genuine, forged)
