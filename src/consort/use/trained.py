"""Restores the model that a run evaluates for a client, for any algorithm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from consort.core.registry import did_you_mean
from consort.data.examples import Splits
from consort.errors import Failure, UsageError
from consort.experiment.opening import open_run
from consort.models.multitask import MultiTaskModel
from consort.run.reported import reported_model


@dataclass(frozen=True)
class TrainedModel:
    """A client's model after the last finished round, and the client's data."""

    client: str
    model: MultiTaskModel
    data: Splits
    round: int
    about: Mapping[str, Any]
    """The content of the run's `run.json`."""


def trained_model(folder: Path, client: str) -> TrainedModel:
    """Restores the model of a client.

    Args:
        folder: The folder of a run.
        client: The name of the client.

    Raises:
        UsageError: If the run has no such client.
        Failure: If no round is finished, or the run is from an older version.
    """
    opened = open_run(folder)
    about = opened.about
    if client not in about["clients"]:
        raise UsageError(f"{folder} has no client {did_you_mean(client, about['clients'])}")
    if "scan" not in about["clients"][client]:
        raise Failure(f"{folder} comes from an older version of Consort: start the run again")
    run = opened.run
    found = reported_model(run, client)
    if found is None:
        raise Failure(
            f"{folder}: no round is finished yet; continue with `consort resume {folder}`"
        )
    return TrainedModel(client, found.model, run.federation.data(client), found.round, about)
