"""Records of comparisons: which file they belong to, and by which settings they were decided."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from consort.experiment.recipe import Recipe
from consort.experiment.run_folder import deciding, written_recipe
from consort.experiment.shipped import shipped_recipes
from consort.results.records import Record, add_records, settings_digest
from consort.results.result import Result


def settings_of(recipe: Recipe, algorithm: str) -> str:
    """A digest of everything in a recipe that decides what an algorithm comes to.

    Args:
        recipe: The recipe, with a scale applied to it.
        algorithm: The name of one of its algorithms.
    """
    averaged = {"average_rounds": recipe.table.get("average_rounds")}
    return settings_digest(deciding(recipe.table, algorithm) | averaged)


def record_file(root: Path, recipe: Path, scale: str | None) -> Path:
    """The file in which the runs of a recipe are recorded.

    Args:
        root: The folder of all records.
        recipe: The recipe's file.
        scale: The scale, if one was chosen.
    """
    names = {path: name for name, path in shipped_recipes().items()}
    return root / names.get(recipe, recipe.stem) / f"{scale or 'default'}.csv"


def record(root: Path, recipe: Path, scale: str | None, folders: Sequence[Path]) -> Path:
    """Records what runs came to.

    Args:
        root: The folder of all records.
        recipe: The recipe's file.
        scale: The scale, if one was chosen.
        folders: The folders of the runs.

    Returns:
        The file.

    Raises:
        Failure: The file cannot be read or written.
    """
    records = []
    for folder in folders:
        run = Result.load(folder)
        written = written_recipe(run.about["recipe"], str(folder / "run.json"))
        records.append(Record.of(run, settings_of(written, run.algorithm)))
    path = record_file(root, recipe, scale)
    add_records(path, records)
    return path
