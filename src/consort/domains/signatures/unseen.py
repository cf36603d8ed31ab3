"""The evaluation that a recipe asks for in [verification] and [unseen]."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar

from consort.core.bounds import NonNegativeInt
from consort.core.inputs import first_of
from consort.core.randomness import derive
from consort.data.dataset import Dataset
from consort.domains.signatures.dataset import held_out, is_signatures
from consort.domains.signatures.verification import SignatureVerification
from consort.domains.signatures.writer_dependent import WriterDependent
from consort.errors import UsageError
from consort.training.evaluation import Examinee, Load

_divided = lru_cache(maxsize=2)(held_out)
"""Like `held_out`, with a cache: all runs of a comparison divide the same data."""


@dataclass(frozen=True)
class Unseen:
    """Users that no client trains on: some of the recipe's data, or those of another data set."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    users: NonNegativeInt = 0
    """The number of users of the recipe's `data`, the last ones, that are held out."""
    data: dict[str, Any] = field(default_factory=dict)
    """The table of another data set."""


@dataclass(frozen=True)
class Verifying:
    """The tables [verification] and [unseen] of a recipe; an `Evaluation`.

    Raises:
        UsageError: If a table of [unseen] is not valid.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    verification: WriterDependent
    """The protocol of verification."""
    unseen: dict[str, Unseen] = field(default_factory=dict)
    """By name: users that no client trains on, and that are verified in the last round."""

    def __post_init__(self) -> None:
        for name, table in self.unseen.items():
            if not name.isidentifier():
                raise UsageError(f"unseen.{name}: rename it with only letters, digits and _")
            if bool(table.users) == bool(table.data):
                raise UsageError(f"unseen.{name} needs either `users` or `data`, and not both")
        if sum(bool(table.users) for table in self.unseen.values()) > 1:
            raise UsageError("only one table of [unseen] can hold out users of the recipe's data")

    def kept(self, dataset: Dataset) -> Dataset:
        """The recipe's `dataset` without the users that are held out."""
        users = sum(table.users for table in self.unseen.values())
        return _divided(dataset, users)[0] if users else dataset

    def extra(
        self, clients: Mapping[str, Examinee], load: Load, data: Mapping[str, Any], seed: int
    ) -> SignatureVerification:
        """Prepares the verification of the clients' users and of the unseen ones.

        Args:
            clients: All clients that will be evaluated, by name.
            load: Loads further data sets.
            data: The table `data` of the recipe.
            seed: The seed of the run.

        Returns:
            What is measured in every evaluation of the run.

        Raises:
            UsageError: If a client has other tasks, or the data of [unseen] are not suitable.
        """
        for client, examinee in clients.items():
            if not {"identify", "detect"} <= examinee.tasks.keys():
                raise UsageError(
                    f"[verification] needs the tasks identify and detect, but client {client} has "
                    f"the tasks {', '.join(examinee.tasks)}: change them, or remove [verification]"
                )
        unseen = {}
        for name, table in self.unseen.items():
            if table.users:
                _, strangers = _divided(load(data, seed), table.users)
            else:
                # Generated users differ from the clients', even if all options are the same.
                strangers = load(table.data, derive(seed, "unseen"))
                _check(f"unseen.{name}", strangers, clients)
            unseen[f"unseen_{name}"] = strangers
        return SignatureVerification(self.verification, derive(seed, "verification"), unseen)


def _check(where: str, strangers: Dataset, clients: Mapping[str, Examinee]) -> None:
    """Refuses data that the models cannot take, and signatures that clients may train on."""
    if not is_signatures(strangers):
        raise UsageError(f"{where}: {strangers.name} is not a data set of signatures: choose one")
    shape = tuple(first_of(strangers.example).shape)
    for client, examinee in clients.items():
        expected = tuple(first_of(examinee.dataset.example).shape)
        if shape != expected:
            raise UsageError(
                f"{where}: its images are {shape}, but the model of client {client} takes "
                f"{expected}: give both data sets the same size"
            )
    theirs = _images(strangers)
    known = {id(examinee.dataset): examinee.dataset for examinee in clients.values()}
    if any(theirs & _images(dataset) for dataset in known.values()):
        raise UsageError(
            f"{where}: clients hold some of its signatures, so its users are not unseen: "
            "choose others with only_users, or hold some out with `users`"
        )


def _images(dataset: Dataset) -> set[int]:
    """A hash of each signature, except for empty pages, which are all equal."""
    return {hash(row.numpy().tobytes()) for row in dataset.examples.tensor if row.any()}
