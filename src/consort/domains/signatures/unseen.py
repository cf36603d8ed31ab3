"""Who is verified in a run: the clients' own users, and some that no client knows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar

from consort.core.bounds import NonNegativeInt
from consort.core.randomness import derive
from consort.data.dataset import Dataset
from consort.domains.signatures.dataset import held_out, is_signatures
from consort.domains.signatures.verification import SignatureVerification
from consort.domains.signatures.writer_dependent import WriterDependent
from consort.errors import UsageError
from consort.training.evaluation import Examinee, Load

_divided = lru_cache(maxsize=2)(held_out)
"""The same, remembered: all runs of a comparison divide the same data."""


@dataclass(frozen=True)
class Unseen:
    """Users that no client trains on: some of the recipe's own data, or those of other data."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    users: NonNegativeInt = 0
    """The last so many users of `data` at the top of the recipe; clients share the others."""
    data: dict[str, Any] = field(default_factory=dict)
    """Another data set."""


@dataclass(frozen=True)
class Verifying:
    """What a recipe says in [verification] and [unseen]; an `Evaluation`."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    verification: WriterDependent
    unseen: dict[str, Unseen] = field(default_factory=dict)
    """By name: users that are verified in the last round, and that no client trains on."""

    def __post_init__(self) -> None:
        for name, table in self.unseen.items():
            if not name.isidentifier():
                raise UsageError(f"unseen.{name}: a name has only letters, digits and _")
            if bool(table.users) == bool(table.data):
                raise UsageError(f"unseen.{name} needs either `users = 10` or `data`, and not both")
        if sum(bool(table.users) for table in self.unseen.values()) > 1:
            raise UsageError("only one table of [unseen] can hold users out of the recipe's data")

    def kept(self, dataset: Dataset) -> Dataset:
        """The recipe's data without the users that are held out."""
        users = sum(table.users for table in self.unseen.values())
        return _divided(dataset, users)[0] if users else dataset

    def extra(
        self, clients: Mapping[str, Examinee], load: Load, data: Mapping[str, Any], seed: int
    ) -> SignatureVerification:
        """What verifies the clients' users and the unseen ones."""
        for client, examinee in clients.items():
            if not {"identify", "detect"} <= examinee.tasks.keys():
                raise UsageError(
                    f"[verification] is for signatures, but client {client} has the tasks "
                    f"{', '.join(examinee.tasks)}: it needs identify and detect"
                )
        unseen = {}
        for name, table in self.unseen.items():
            if table.users:
                _, strangers = _divided(load(data, seed), table.users)
            else:
                # Generated users are others than the clients', even if all options are the same.
                strangers = load(table.data, derive(seed, "unseen"))
                _check(f"unseen.{name}", strangers, clients)
            unseen[f"unseen_{name}"] = strangers
        return SignatureVerification(self.verification, derive(seed, "verification"), unseen)


def _check(where: str, strangers: Dataset, clients: Mapping[str, Examinee]) -> None:
    """Refuses what no model could take, and signatures that some client may train on."""
    if not is_signatures(strangers):
        raise UsageError(f"{where}: {strangers.name} is no collection of signatures")
    shape = tuple(strangers.example.shape)
    for client, examinee in clients.items():
        expected = tuple(examinee.dataset.example.shape)
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
    """One number for each signature with ink on it: empty pages are alike, whosever they are."""
    return {hash(row.numpy().tobytes()) for row in dataset.examples.inputs if row.any()}
