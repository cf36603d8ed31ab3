"""Partitioning a data set among clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from consort.data.partition.classes import classes
from consort.data.partition.cut import Cut
from consort.data.partition.dirichlet import dirichlet
from consort.data.partition.domain import domain
from consort.data.partition.iid import iid
from consort.data.partition.natural import natural
from consort.data.partition.quantity import quantity
from consort.data.partition.saved import fingerprint, load_partition, save_partition
from consort.data.partition.share import Share, divide
from consort.data.partition.task import task
from consort.data.partition.units import all_of_units, one_per_unit
from consort.errors import UsageError

if TYPE_CHECKING:
    from consort.data.dataset import Dataset

__all__ = ["Cut", "Share", "fingerprint", "load_partition", "partition", "save_partition"]


def partition(dataset: Dataset, clients: int, cut: Cut, seed: int) -> list[Share]:
    """Divides a data set among clients; the same seed gives the same result on every machine.

    Args:
        dataset: The data set. Examples of one unit (`dataset.units`) stay together.
        clients: The number of clients.
        cut: The partitioning scheme and its options.
        seed: The seed of all random choices, unless the cut has one of its own.

    Returns:
        For each client its training, validation and test examples and its tasks.

    Raises:
        UsageError: If the data set is too small or lacks what the scheme needs.
    """
    if dataset.units is not None:
        whole = partition(one_per_unit(dataset, dataset.units), clients, cut, seed)
        return [all_of_units(share, dataset.units) for share in whole]
    from consort.core.randomness import derive

    chosen = seed if cut.seed is None else cut.seed
    rng = np.random.default_rng(derive(chosen, "partition"))
    _check_request(dataset, clients, cut)
    parts = _parts(dataset, clients, cut, rng)
    _check_sizes(parts, cut)
    tasks = tuple(dataset.tasks)
    strata = dataset.labels if dataset.strata is None else dataset.strata
    return [
        Share(*split, tasks=(tasks[client % len(tasks)],) if cut.by == "task" else tasks)
        for client, split in enumerate(divide(parts, strata, cut.validation, cut.test, rng))
    ]


def _parts(
    dataset: Dataset, clients: int, cut: Cut, rng: np.random.Generator
) -> list[NDArray[np.int64]]:
    match cut.by:
        case "iid":
            return iid(len(dataset), clients, rng)
        case "dirichlet":
            return dirichlet(
                dataset.labels, clients, cut.alpha, cut.min_examples, rng, cut.balanced
            )
        case "classes":
            return classes(dataset.labels, clients, cut.classes_per_client, rng)
        case "quantity":
            return quantity(len(dataset), clients, cut.alpha, cut.min_examples, rng)
        case "natural":
            return natural(_present(dataset, dataset.owners, "owners"), clients)
        case "domain":
            return domain(_present(dataset, dataset.domains, "domains"), clients, rng)
        case "task":
            return task(len(dataset), clients, len(dataset.tasks), rng)


def _present(dataset: Dataset, known: NDArray[np.int64] | None, what: str) -> NDArray[np.int64]:
    if known is None:
        raise UsageError(f'data set {dataset.name!r} has no {what}: choose another "by"')
    return known


def _check_request(dataset: Dataset, clients: int, cut: Cut) -> None:
    if clients < 1:
        raise UsageError(f"clients = {clients}: at least one client is needed")
    needed = clients * cut.min_examples
    if needed > len(dataset) and cut.by != "task":
        raise UsageError(
            f"clients = {clients} with min_examples = {cut.min_examples} need {needed} examples, "
            f"but data set {dataset.name!r} has {len(dataset)}: lower clients or min_examples"
        )


def _check_sizes(parts: list[NDArray[np.int64]], cut: Cut) -> None:
    for client, part in enumerate(parts):
        if len(part) < cut.min_examples:
            raise UsageError(
                f"client {client} would have {len(part)} examples, fewer than min_examples = "
                f"{cut.min_examples}: lower clients or min_examples"
            )
