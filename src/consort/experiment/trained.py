"""Restores the model that a run evaluates for a client, for any algorithm."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from consort.core.algorithm import Clients
from consort.core.messages import Payload
from consort.core.registry import did_you_mean
from consort.data.examples import Splits
from consort.engines.embedded import Embedded
from consort.engines.host import ClientHost
from consort.engines.middleware import Policed
from consort.engines.states import StateStore
from consort.errors import Failure, UsageError
from consort.experiment.allocation import Seat
from consort.experiment.opening import open_run
from consort.models.multitask import MultiTaskModel
from consort.run.run import Run


@dataclass(frozen=True)
class TrainedModel:
    """A client's model after the last finished round, and the client's data."""

    client: str
    model: MultiTaskModel
    data: Splits
    round: int
    about: Mapping[str, Any]
    """The content of the run's `run.json`."""
    seat: Seat | None = None
    """The client as its recipe describes it; None for a run made in Python."""


def trained_model(where: Path | Run, client: str) -> TrainedModel:
    """Restores the model of a client.

    Args:
        where: The folder of a run; or the run itself, if it was made in Python.
        client: The name of the client.

    Raises:
        UsageError: If the run has no such client.
        Failure: If no round is finished, or the run is from an older version.
    """
    opened = open_run(where)
    folder, about = opened.folder, opened.about
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
    data, seat = run.federation.data(client), opened.seats.get(client)
    return TrainedModel(client, found.model, data, found.round, about, seat)


def load_model(where: Path | str | Run, client: str) -> MultiTaskModel:
    """A client's trained model, to be used in plain PyTorch: `model(inputs)["task"]`.

    Args:
        where: The folder of a run; or the run itself, if it was made in Python.
        client: The name of the client.

    Returns:
        The model that the algorithm reports, after the last finished round, in evaluation mode. Its
        outputs are a dictionary with one entry per task.

    Raises:
        UsageError: The run has no such client, or was made in Python and is not given.
        Failure: No round is finished.

    Examples:
        >>> import torch
        >>> import consort
        >>> recipe = consort.Recipe(
        ...     clients=2,
        ...     data={"name": "synthetic_vectors", "examples": 60, "features": 6, "classes": 4},
        ...     model={"name": "mlp"},
        ...     run={"rounds": 1},
        ...     algorithms={"fedavg": {}},
        ... )
        >>> outcome = consort.train(recipe, progress=False)
        >>> model = consort.load_model(outcome.run, "client-0")
        >>> {task: output.shape for task, output in model(torch.zeros(5, 6)).items()}
        {'classify': torch.Size([5, 4])}
    """
    found = trained_model(Path(where) if isinstance(where, str) else where, client).model
    return found.eval()


class ReportedModel(NamedTuple):
    """A model as it was evaluated, with its scores."""

    model: MultiTaskModel
    scores: Payload
    round: int


def reported_model(run: Run, client: str, back: int = 0) -> ReportedModel | None:
    """Evaluates the models of a client, and keeps the one that the run's algorithm reports.

    Args:
        run: A run with a folder.
        client: The name of the client.
        back: How many rounds before the last finished one.

    Returns:
        The model, or `None` if there is no checkpoint of that round.
    """
    saved = run.saved(back)
    if saved is None:
        return None
    run.federation.compute.apply()
    seen: list[tuple[MultiTaskModel, Payload]] = []
    after = (saved["round"] + 1, 0)
    store = StateStore()  # in memory, so that the folder of the run is not changed
    written = run.states(saved).read(client, after)
    if written:
        store.write(client, (saved["round"], 0), written)
    host = ClientHost(
        run.federation,
        run.algorithm,
        run.seed,
        run.schedule.rounds,
        store,
        witness=lambda model, scores: seen.append((copy.deepcopy(model), scores)),
    )
    clients = Clients(
        ids=(client,),
        round=saved["round"],
        rounds=run.schedule.rounds,
        seed=run.seed,
        engine=Policed(Embedded(host), "stop", 0, lambda _: None),
        population=len(run.federation.client_ids),
        evaluation=True,
    )
    answer = run.algorithm.evaluate(saved["server"], clients)[client]
    reported = answer[run.algorithm.reports]
    return next(ReportedModel(*found, saved["round"]) for found in seen if found[1] is reported)
