"""What the data of a site have been used for, and what it cost, across runs and servers.

The ledger belongs to the client: nothing that a server sends changes what was charged. It is
written, and is on disk, before the answer that it charges leaves the client, so after a crash it
may count an answer that was never sent, but never misses one.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, ClassVar

from annotated_types import Gt, Lt
from pydantic import Strict

from consort.core.bounds import PositiveFloat
from consort.core.files import make_folder, read_checked, write_checked
from consort.core.validation import Table
from consort.errors import Failure, Refused
from consort.federation.protection import Protection
from consort.federation.site import Use, added
from consort.protection.accounting import for_one_example, spent
from consort.protection.dp import Privacy

FILE = "privacy.ledger"
"""The name of the file in the client's credentials folder."""
DELTA = 1e-5
"""The delta of a ledger without a limit."""
Entries = dict[str, dict[str, Any]]
"""By data set: its `limit`, [epsilon, delta] or null, as of the last run that began; and its `runs`
by session: when each began, its algorithm, whether all that is sent has noise, and its uses."""


@dataclass(frozen=True)
class PrivacyLimit:
    """The table `privacy` of a client's policy: what its data may be used for, in all runs."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    epsilon: PositiveFloat
    """The largest epsilon of one training example; studies without noise are refused."""
    delta: Annotated[float, Strict(), Gt(0), Lt(1)] = DELTA
    """The probability with which epsilon may not hold."""
    data: str = ""
    """The name of the data set in the ledger; by default, that of its loader and its folder."""
    ledger: str = ""
    """The file of the ledger; by default, one in the credentials folder. Credentials for several
    servers that use the same data must name the same file."""


def name_of_data(brings: Table, folder: Path | None) -> str:
    """The name under which the ledger keeps a client's data.

    Only the loader and the folder decide, not the options in `client.toml`: another share, another
    size or other classes of the same files tell something about the same people.

    Args:
        brings: The client's data, model and tasks, as in `client.toml`.
        folder: The folder with the data.
    """
    loader = str(brings.get("data", {}).get("name", ""))
    return f"{loader} in {folder.resolve()}" if folder else loader


@dataclass(frozen=True)
class PrivacyLedger:
    """The file with all uses of a site's data, by data set and run."""

    path: Path
    """The file; it is created with the first entry, for its owner alone."""

    def read(self) -> Entries:
        """All entries.

        Raises:
            Failure: If the file is damaged.
        """
        if not self.path.exists():
            return {}
        try:
            entries: Entries = json.loads(read_checked(self.path))
            return entries
        except Failure as error:
            raise Failure(
                f"{self.path} is damaged, so what was spent is not known: restore it from a backup"
            ) from error

    def begin(
        self, data: str, run: str, algorithm: str, noisy: bool, limit: PrivacyLimit | None
    ) -> None:
        """Records that a run uses a data set, before its first answer.

        Args:
            data: The name of the data set.
            run: The session of the run.
            algorithm: What is run, for the reader of the ledger.
            noisy: Whether everything that is sent of the training data has noise.
            limit: The limit of the data set, if it has one.
        """
        with self._changed() as entries:
            entry = entries.setdefault(data, {"limit": None, "runs": {}})
            entry["limit"] = [limit.epsilon, limit.delta] if limit else None
            now = datetime.now(UTC).isoformat(timespec="seconds")
            new = {"began": now, "algorithm": algorithm, "noisy": noisy, "uses": []}
            written = entry["runs"].setdefault(run, new)
            written["noisy"] = written["noisy"] and noisy

    def charge(self, data: str, run: str, use: Use, limit: PrivacyLimit | None) -> None:
        """Records a use; it is on disk when this returns.

        Args:
            data: The name of the data set.
            run: The session of a run that has begun.
            use: The use.
            limit: The limit of the data set, if it has one.

        Raises:
            Refused: If the use is above the limit; then nothing is recorded.
        """
        with self._changed() as entries:
            refuse_excess(uses_of(entries, data), use, limit)
            entry = entries[data]["runs"][run]
            entry["uses"] = added(entry["uses"], use)

    @contextmanager
    def _changed(self) -> Iterator[Entries]:
        """The entries, which are written when the context ends well; no other process may write."""
        make_folder(self.path.parent)
        lock = os.open(self.path.with_suffix(".lock"), os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            entries = self.read()
            yield entries
            write_checked(self.path, json.dumps(entries).encode())
        finally:
            os.close(lock)


@dataclass(frozen=True)
class Account:
    """The part of a ledger that one run of one client writes."""

    ledger: PrivacyLedger
    data: str
    """The name of the client's data set."""
    run: str
    """The session of the run."""
    limit: PrivacyLimit | None = None

    def afford(self, use: Use) -> None:
        """Checks that a `use` stays within the limit.

        Raises:
            Refused: If it does not.
        """
        if self.limit:
            refuse_excess(uses_of(self.ledger.read(), self.data), use, self.limit)

    def charge(self, use: Use) -> None:
        """Records a `use`: see `PrivacyLedger.charge`."""
        self.ledger.charge(self.data, self.run, use, self.limit)

    @property
    def uses(self) -> list[Use]:
        """The uses of this run."""
        return [Use(*use) for use in self.ledger.read()[self.data]["runs"][self.run]["uses"]]


def uses_of(entries: Entries, data: str) -> list[Use]:
    """All uses of a data set, in all runs.

    Args:
        entries: The entries of a ledger.
        data: The name of the data set.
    """
    runs = entries[data]["runs"].values() if data in entries else ()
    return [Use(*use) for run in runs for use in run["uses"]]


def epsilon_of(uses: Sequence[Use], delta: float) -> float:
    """The epsilon of one training example over uses of all kinds.

    Args:
        uses: The uses.
        delta: The probability with which epsilon may not hold.
    """
    return spent(map(for_one_example, uses), delta)


def refuse_excess(uses: Sequence[Use], use: Use, limit: PrivacyLimit | None) -> None:
    """Checks that one more use stays within a limit.

    Args:
        uses: The uses so far.
        use: The one that is asked for.
        limit: The limit, if there is one.

    Raises:
        Refused: If it does not.
    """
    if limit and not epsilon_of([*uses, use], limit.delta) <= limit.epsilon:
        raise Refused(
            f"the limit of its data, epsilon = {limit.epsilon:g} over all runs, does not allow "
            "this: ask for less, or for more noise"
        )


def has_noise(protections: Sequence[Protection]) -> bool:
    """Whether protections charge everything that a client sends of its training data."""
    return any(isinstance(protection, Privacy) for protection in protections)


def refuse_without_noise(protections: Sequence[Protection], limit: PrivacyLimit | None) -> None:
    """Checks that a study has noise, if the client has a limit.

    Args:
        protections: The protections of the study.
        limit: The limit of the client's data, if there is one.

    Raises:
        Refused: If the study has none.
    """
    if limit and not has_noise(protections):
        raise Refused(
            f"its data have a limit of epsilon = {limit.epsilon:g}, so it takes part only in "
            "studies with [privacy]"
        )
