"""A recipe read from its file, with a scale and changes laid over it, and checked as a whole."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from consort.core.algorithm import Algorithm
from consort.core.registry import did_you_mean
from consort.core.validation import Table, checked
from consort.data.partition import Cut
from consort.errors import UsageError
from consort.experiment.recipe import Recipe
from consort.experiment.tables import dropped, merged
from consort.results.claims import Claim


def load_recipe(
    path: Path,
    scale: str | None = None,
    changes: Sequence[str] = (),
    tell: Callable[[str], Any] = lambda _: None,
) -> Recipe:
    """Reads and checks a recipe.

    Args:
        path: The file.
        scale: One of its scales.
        changes: Lines such as `run.rounds=5`.
        tell: Is told which options a change leaves out, since they belonged to something else.

    Raises:
        UsageError: The file cannot be read, or is not valid.
    """
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not valid TOML: {error}") from error
    if scale is not None:
        scales = table.get("scales", {})
        if scale not in scales:
            raise UsageError(f"{path} has no scale {did_you_mean(scale, scales)}")
        _tell_dropped(table, scales[scale], f"scale {scale}", tell)
        table = merged(table, scales[scale])
    for change in changes:
        parsed = _parsed(change)
        _tell_dropped(table, parsed, f"--set {change}", tell)
        table = merged(table, parsed)
    return recipe_of(anchored(table, path.parent), str(path))


def _tell_dropped(
    table: Mapping[str, Any], changes: Mapping[str, Any], source: str, tell: Callable[[str], Any]
) -> None:
    lost = dropped(table, changes)
    if lost:
        options = ", ".join(f"{key} = {json.dumps(value)}" for key, value in sorted(lost.items()))
        tell(f"{source} leaves out {options}: give them again with --set if they are to stay")


@contextmanager
def located(path: Path, recipe: Recipe) -> Iterator[None]:
    """Adds the file and the line to what is found wrong with a claim once data are there.

    Args:
        path: The file of the recipe.
        recipe: The recipe.

    Raises:
        UsageError: With the place of the claim.
    """
    try:
        yield
    except UsageError as error:
        lines = path.read_text("utf-8").splitlines()
        for claim in recipe.claims:
            if f"claim `{claim}`" in str(error):
                numbers = [number for number, line in enumerate(lines, 1) if claim in line]
                where = f"{path}, line {numbers[0]}" if numbers else str(path)
                raise UsageError(f"{where}: {error}") from error
        raise


def recipe_of(table: Mapping[str, Any], source: str) -> Recipe:
    """Checks a recipe that is already a table, algorithms and models included."""
    try:
        recipe: Recipe = checked(Recipe, _with_whole_cuts(table), "")
        for group in recipe.all_groups:
            recipe.models_of(group)
            recipe.obfuscations_of(group)
        recipe.examinations  # noqa: B018 - refuses options that do not fit
        trainings = {group.name: recipe.local_of(group) for group in recipe.groups}
        for name in recipe.algorithms:
            _check_trainings(name, recipe.algorithm(name), trainings)
            recipe.protections(name)
            recipe.schedule(name)
        for claim in recipe.claims:
            Claim.parse(claim, list(recipe.algorithms))
    except UsageError as error:
        raise UsageError(f"{source}: {error}") from error
    return recipe


def _check_trainings(name: str, algorithm: Algorithm[Any], trainings: Mapping[str, Table]) -> None:
    """Refuses an algorithm that cannot be trained as one of the groups wants it."""
    for group, changes in trainings.items():
        try:
            algorithm.with_local(changes)
        except UsageError as error:
            raise UsageError(f"groups.{group}.local, for {name}: {error}") from error


def _with_whole_cuts(table: Mapping[str, Any]) -> Mapping[str, Any]:
    """A recipe in which a group's partition also says what it takes from the common one."""
    common, groups = table.get("partition", {}), table.get("groups", [])
    if not (isinstance(common, dict) and isinstance(groups, list)):
        return table
    checked(Cut, common, "partition")  # before its keys turn up in groups
    return {**table, "groups": [_with_whole_cut(group, common) for group in groups]}


def _with_whole_cut(group: Any, common: Table) -> Any:
    own = group.get("partition") if isinstance(group, dict) else None
    return {**group, "partition": merged(common, own)} if isinstance(own, dict) else group


def anchored(value: Any, folder: Path) -> Any:
    """A table in which a user's `file.py:name` that lies beside the recipe has its whole path.

    So a run finds it again wherever it is resumed.
    """
    if isinstance(value, dict):
        return {key: anchored(item, folder) for key, item in value.items()}
    if isinstance(value, list):
        return [anchored(item, folder) for item in value]
    if isinstance(value, str) and ".py:" in value:
        file, _, name = value.partition(":")
        if (folder / file).is_file():
            return f"{(folder / file).resolve()}:{name}"
    return value


def _parsed(change: str) -> Table:
    key, equals, value = change.partition("=")
    if not equals:
        raise UsageError(f"--set {change}: write key=value, such as run.rounds=5")
    for text in (value, json.dumps(value)):
        try:
            return tomllib.loads(f"{key.strip()} = {text}")
        except tomllib.TOMLDecodeError:
            continue
    raise UsageError(f"--set {change}: {key!r} is not a key, such as run.rounds")
