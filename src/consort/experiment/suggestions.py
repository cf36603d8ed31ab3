"""Which settings are tried next: all at once for grid and random search, in batches for Optuna."""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import Any

from consort.errors import UsageError
from consort.experiment.sweep import Point, Range, Space, Sweep

BATCH = 4
"""Settings that Optuna suggests at a time. It does not depend on the number of jobs, so that the
search does not either."""


def suggestions(
    sweep: Sweep, algorithm: str, budget: int, higher_is_better: bool
) -> Generator[list[Point], list[float], None]:
    """Batches of settings; each is answered with the scores of its settings.

    Args:
        sweep: The search.
        algorithm: The name of the algorithm.
        budget: How many settings in all.
        higher_is_better: Of the scores; a failed setting has NaN.

    Raises:
        UsageError: Optuna is asked for and not installed.
    """
    if sweep.method != "optuna":
        yield sweep.points(algorithm, budget)
        return
    yield from _by_optuna(sweep, algorithm, budget, higher_is_better)


def _by_optuna(
    sweep: Sweep, algorithm: str, budget: int, higher_is_better: bool
) -> Generator[list[Point], list[float], None]:
    try:
        import optuna
    except ImportError:
        raise UsageError(
            "method = \"optuna\" needs another package: pip install 'fedconsort[optuna]'"
        ) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    space = sweep.space_of(algorithm)
    study = optuna.create_study(
        direction="maximize" if higher_is_better else "minimize",
        sampler=optuna.samplers.TPESampler(seed=sweep.seed),
    )
    for start in range(0, budget, BATCH):
        trials = [study.ask() for _ in range(min(BATCH, budget - start))]
        scores = yield [_point(trial, space) for trial in trials]
        for trial, score in zip(trials, scores, strict=True):
            if math.isnan(score):
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
            else:
                study.tell(trial, score)


def _point(trial: Any, space: Space) -> Point:
    return {key: _value(trial, key, values) for key, values in space.items()}


def _value(trial: Any, key: str, values: Any) -> Any:
    if not isinstance(values, Range):
        return trial.suggest_categorical(key, values)
    if values.whole:
        return trial.suggest_int(key, round(values.low), round(values.high), log=values.log)
    return trial.suggest_float(key, values.low, values.high, log=values.log)
