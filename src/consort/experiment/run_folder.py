"""What the folder of a run says about it, and whether a run may go on there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from consort.core.files import held
from consort.core.sealed import write_json
from consort.data.partition import Share, fingerprint, load_partition, save_partition
from consort.errors import Failure, UsageError
from consort.experiment.loading import recipe_of
from consort.experiment.recipe import Recipe
from consort.results.mixing import TELLS
from consort.run.checkpoints import Checkpoints
from consort.run.description import PYTHON, environment
from consort.run.differences import differences
from consort.run.extension import refuse_extension, repeat_last_round
from consort.run.folder import FORMAT, read_description
from consort.run.run import Run

_DECIDES = ("algorithm", "seed", "recipe", "partition")


def about_run(recipe: Recipe, name: str, seed: int, noise: str = "seed") -> dict[str, Any]:
    """What `run.json` says about the algorithm, its protections and the machine.

    Args:
        recipe: The recipe.
        name: The name of one of its algorithms.
        seed: The seed of the run.
        noise: Where the noise of protections comes from: the `seed` of the run, which whoever knows
            it can subtract, or `secret` randomness of the clients' own machines.
    """
    algorithm = recipe.algorithm(name)
    return {
        **dict.fromkeys(("privacy", "secure")),
        **{protection.table: asdict(protection) for protection in recipe.protections(name)},
        "noise": noise,
        "format": FORMAT,
        "algorithm": name,
        "kind": type(algorithm).__name__,
        "description": (type(algorithm).__doc__ or "").partition("\n")[0],
        "reports": algorithm.reports,
        "seed": seed,
        "rounds": recipe.run.rounds,
        "environment": environment(),
    }


def deciding(recipe: dict[str, Any], algorithm: str) -> dict[str, Any]:
    """Of a recipe as it is written down, what decides the numbers of one algorithm."""
    settings = {key: value for key, value in recipe.items() if key not in TELLS}
    return settings | {"algorithms": {algorithm: recipe["algorithms"].get(algorithm)}}


def _decisive(description: dict[str, Any]) -> dict[str, Any]:
    """What must be the same for a run to go on."""
    recipe = deciding(description["recipe"], description["algorithm"])
    return {key: description[key] for key in _DECIDES} | {"recipe": recipe}


def settle(
    folder: Path,
    description: dict[str, Any],
    shares: dict[str, Share] | None,
    run: Run | None = None,
) -> None:
    """Writes the description down, or checks that it is still the one written there.

    Args:
        folder: The folder of the run.
        description: What `run.json` is to say.
        shares: Who holds which examples; None where each client has data of its own.
        run: The run, if it may be extended to more rounds.

    Raises:
        UsageError: The folder holds another run, or the run cannot be extended.
    """
    path = folder / "run.json"
    if path.exists():
        written = refuse_another_run(folder, description, run)
        if shares is not None:
            _check_partition(folder / "partition.json", description)
        told = {key: description[key] for key in ("format", "title", "recipe", "rounds")}
        if any(written.get(key) != value for key, value in told.items()):
            with held(folder):
                if run is not None and written["rounds"] != description["rounds"]:
                    repeat_last_round(run, folder, written["rounds"])
                write_json(path, written | told)
        return
    if Checkpoints(folder).exist:  # they are of a run of which nobody knows what it was
        raise Failure(f"{path} is missing: start the run again in a new folder")
    if shares is not None:
        save_partition(folder / "partition.json", shares)
    write_json(path, description)


def refuse_another_run(
    folder: Path, description: dict[str, Any], run: Run | None = None
) -> dict[str, Any]:
    """What `run.json` says, if there is one; it must be the run that is described.

    Args:
        folder: The folder of the run.
        description: What `run.json` is to say.
        run: The run, if it may be extended to more rounds.

    Raises:
        UsageError: The folder holds another run, or the run cannot be extended.
    """
    path = folder / "run.json"
    if not path.exists():
        return {}
    written = read_description(folder)
    refuse_python(folder, written)
    filled = _filled_in(written["recipe"], str(path))
    before, now = _decisive(written | {"recipe": filled}), _decisive(description)
    if run is not None:
        rounds = before["recipe"]["run"]["rounds"], now["recipe"]["run"]["rounds"]
        before["recipe"]["run"] = before["recipe"]["run"] | {"rounds": rounds[1]}
    for key in _DECIDES:
        for place, was, is_now in differences(before[key], now[key], key):
            told = f" ({place}: {was}, now {is_now})" if place != key else ""
            raise UsageError(
                f"{folder} holds a run with another {key}{told}: choose another --out, or delete it"
            )
    if run is not None:
        refuse_extension(folder, *rounds, run.algorithm, run.federation)
    return written


def refuse_python(folder: Path, about: Mapping[str, Any]) -> None:
    """Refuses a run whose clients no recipe describes.

    Args:
        folder: The folder of the run.
        about: What its `run.json` says.

    Raises:
        UsageError: The run was made in Python.
    """
    if about.get("made") == PYTHON:
        raise UsageError(
            f"{folder} was made in Python: its clients are known only there; make the same run "
            "again in Python (finished rounds cost nothing), and use it in place of the folder"
        )


def _filled_in(written: dict[str, Any], source: str) -> dict[str, Any]:
    """A recipe as this version writes it down: keys that came later have their defaults."""
    return written_recipe(written, source).table


def _check_partition(path: Path, description: dict[str, Any]) -> None:
    shares = load_partition(path)
    same = fingerprint(shares.values()) == description["partition"]
    if not same or shares.keys() != description["clients"].keys():
        raise Failure(f"{path} was changed since the run began")


def written_recipe(written: dict[str, Any], source: str) -> Recipe:
    """The recipe that `run.json` holds."""
    given = {key: value for key, value in written.items() if value is not None}
    for key in ("robust", "privacy", "attack"):
        if given.get(key) == {}:  # how version 0.1 wrote down that there is none
            del given[key]
    return recipe_of(given, source)
