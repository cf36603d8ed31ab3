"""A small run with clients that remember things, for tests that disturb it."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from tests.unit.cli.command import RECIPE, client_states, measured, server_bytes

from consort.engines.choice import EngineChoice
from consort.experiment.loading import recipe_of
from consort.experiment.preparation import prepare_run
from consort.experiment.recipe import Recipe
from consort.run.observer import Observer

ROUNDS = 3


@cache
def recipe(rounds: int = ROUNDS) -> Recipe:
    import tomllib

    table = tomllib.loads(RECIPE)
    table["run"] = {"rounds": rounds, "participation": 0.7, "dropout": 0.2}
    return recipe_of(table, "faults")


def go(
    folder: Path, workers: int = 1, observer: Observer | None = None, rounds: int = ROUNDS
) -> None:
    """What the command does that is given again after a crash."""
    engine = EngineChoice(workers=workers)
    prepare_run(recipe(rounds), "ditto", 0, folder, engine=engine, observer=observer).go()


def outcome(folder: Path) -> tuple[list[str], bytes, dict[str, bytes]]:
    """Everything about a run that must not depend on what was done to it."""
    return measured(folder), server_bytes(folder), client_states(folder)
