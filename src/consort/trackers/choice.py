"""Trackers by name, as `--log` gives them."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from consort.core.registry import did_you_mean
from consort.errors import UsageError
from consort.trackers.tracker import Tracker, needed

_PLACES = {
    "tensorboard": ("tensorboard", "TensorBoard"),
    "mlflow": ("mlflow", "MLflow"),
    "wandb": ("wandb", "WeightsAndBiases"),
    "trackio": ("trackio", "Trackio"),
}


def check_trackers(names: Sequence[str]) -> None:
    """Checks, before anything is trained, that all trackers are known and installed.

    Args:
        names: The names.

    Raises:
        UsageError: There is no such tracker, or its package is not installed.
    """
    for name in names:
        if name not in _PLACES:
            raise UsageError(f"--log: there is no tracker {did_you_mean(name, _PLACES)}")
        needed(name, name)


def trackers(names: Sequence[str], folder: Path, root: Path) -> list[Tracker]:
    """The observers of a run that track it.

    Args:
        names: The names of trackers.
        folder: The folder of the run.
        root: The folder of all runs.
    """
    made: list[Tracker] = []
    for name in names:
        module, kind = _PLACES[name]
        made.append(getattr(import_module(f"consort.trackers.{module}"), kind)(folder, root))
    return made
