"""Who is verified in a recipe's runs: the clients' own users, and some that no client knows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from consort.core.randomness import derive
from consort.data.dataset import Dataset
from consort.domains.signatures.dataset import is_signatures
from consort.domains.signatures.verification import METRIC, TASK, Verification
from consort.errors import UsageError
from consort.experiment.allocation import Seat, dataset_of, divided, example_of
from consort.experiment.recipe import Recipe


def verification_of(
    recipe: Recipe, seats: Mapping[str, Seat], seed: int, data: Path | None
) -> Verification | None:
    """What the recipe wants to be verified, if anything, after a look at whether that can be."""
    if recipe.verification is None:
        return None
    for client, seat in seats.items():
        if not {"identify", "detect"} <= seat.tasks.keys():
            raise UsageError(
                f"[verification] is for signatures, but client {client} has the tasks "
                f"{', '.join(seat.tasks)}: it needs identify and detect"
            )
    unseen = {}
    for name, table in recipe.unseen.items():
        if table.users:
            _, strangers = divided(dataset_of(recipe.data, seed, data), table.users)
        else:
            # Generated users are others than the clients', even if all options are the same.
            strangers = dataset_of(table.data, derive(seed, "unseen"), data)
            _check(f"unseen.{name}", strangers, seats)
        unseen[f"unseen_{name}"] = strangers
    return Verification(recipe.verification, derive(seed, "verification"), unseen)


def verified_task(recipe: Recipe) -> dict[str, dict[str, Any]]:
    """What results say about verification, beside the clients' tasks; nothing if there is none."""
    if recipe.verification is None:
        return {}
    return {TASK: {"metric": METRIC, "higher_is_better": False}}


def _check(where: str, strangers: Dataset, seats: Mapping[str, Seat]) -> None:
    """Refuses what no model could take, and signatures that some client may train on."""
    if not is_signatures(strangers):
        raise UsageError(f"{where}: {strangers.name} is no collection of signatures")
    shape = tuple(example_of(strangers).shape)
    for client, seat in seats.items():
        expected = tuple(example_of(seat.dataset).shape)
        if shape != expected:
            raise UsageError(
                f"{where}: its images are {shape}, but the model of client {client} takes "
                f"{expected}: give both data sets the same size"
            )
    theirs = _images(strangers)
    known = {id(seat.dataset): seat.dataset for seat in seats.values()}
    if any(theirs & _images(dataset) for dataset in known.values()):
        raise UsageError(
            f"{where}: clients hold some of its signatures, so its users are not unseen: "
            "choose others with only_users, or hold some out with `users`"
        )


def _images(dataset: Dataset) -> set[int]:
    """One number for each signature with ink on it: empty pages are alike, whosever they are."""
    return {hash(row.numpy().tobytes()) for row in dataset.examples.inputs if row.any()}
