"""The model that a run evaluates for a client, restored for any algorithm."""

from __future__ import annotations

import copy
from typing import NamedTuple

from consort.core.algorithm import Clients
from consort.core.messages import Payload
from consort.engines.embedded import Embedded
from consort.engines.host import ClientHost
from consort.engines.middleware import Policed
from consort.engines.states import StateStore
from consort.models.multitask import MultiTaskModel
from consort.run.run import Run


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
    host = ClientHost(
        run.federation,
        run.algorithm,
        run.seed,
        run.schedule.rounds,
        StateStore(run.folder and run.folder / "clients"),
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
