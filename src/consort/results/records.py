"""What runs came to, in a CSV file small enough for a repository: one row for each run.

Every row names the settings that decided the run and where its numbers come from. Runs on another
processor have rows of their own: their last bits differ, and with them, over many rounds, more.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

from consort.errors import Failure
from consort.results.gains import has_higher_better, scores
from consort.results.result import Result

_UP, _DOWN = "+", "-"
"""How columns begin that hold a task's score, of which more is better, or less."""


class Score(NamedTuple):
    """What clients of a group reached in a task."""

    value: float
    higher_is_better: bool


@dataclass(frozen=True)
class Provenance:
    """Which run it was, and where it ran."""

    algorithm: str
    """The algorithm's name in the recipe."""
    kind: str
    """Its class."""
    seed: int
    settings: str
    """A digest of everything in the recipe that decides the run."""
    commit: str
    """The commit of the source, with `+` if it had been changed; empty if it is not known."""
    consort: str
    torch: str
    cpu: str
    rounds: int
    clients: int


@dataclass(frozen=True)
class Record:
    """What one run came to."""

    origin: Provenance
    values: Mapping[str, float]
    """Everything that a claim or a table can name."""
    tasks: Mapping[str, Score]
    """By `group/task`."""

    @classmethod
    def of(cls, run: Result, settings: str = "") -> Record:
        """Reads off what a run came to.

        Args:
            run: The run.
            settings: The digest of its settings.
        """
        environment: Mapping[str, Any] = run.about.get("environment") or {}
        origin = Provenance(
            algorithm=run.algorithm,
            kind=str(run.about.get("kind", "")),
            seed=run.seed,
            settings=settings,
            commit=environment.get("commit", ""),
            consort=environment.get("consort", ""),
            torch=environment.get("torch", ""),
            cpu=environment.get("cpu", ""),
            rounds=run.rounds_done,
            clients=len(run.clients),
        )
        tasks = {
            "/".join(whose): Score(value, has_higher_better(run, whose[1]))
            for whose, value in scores(run).items()
        }
        return cls(origin, {name: run.value(name) for name in run.metric_names()}, tasks)

    @property
    def key(self) -> tuple[str, int, str]:
        """What no two rows of a file share: algorithm, seed and processor."""
        return self.origin.algorithm, self.origin.seed, self.origin.cpu


def settings_digest(settings: Mapping[str, Any]) -> str:
    """A digest of settings as they are written down.

    Args:
        settings: What decides the numbers of a run, as plain values.
    """
    text = json.dumps(settings, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


def read_records(path: Path) -> list[Record]:
    """Reads a file of records.

    Args:
        path: The file.

    Raises:
        Failure: It cannot be read, or holds something else.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return [_read(row) for row in csv.DictReader(file, strict=True)]
    except OSError as error:
        raise Failure(f"{path}: cannot be read: {error.strerror}") from error
    except (KeyError, TypeError, ValueError, csv.Error) as error:
        raise Failure(f"{path}: this is no file of `consort compare --record`: {error}") from error


def add_records(path: Path, records: Iterable[Record]) -> None:
    """Adds rows to a file, in place of rows of the same algorithm, seed and processor.

    Args:
        path: The file; it is made if it is not there.
        records: The rows.

    Raises:
        Failure: It cannot be read or written.
    """
    known = {record.key: record for record in (read_records(path) if path.exists() else [])}
    known |= {record.key: record for record in records}
    rows = sorted(known.values(), key=lambda r: (r.origin.cpu, r.origin.algorithm, r.origin.seed))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(path.name + ".tmp")
        draft.write_text(_written(rows), "utf-8")
        draft.replace(path)
    except OSError as error:
        raise Failure(f"{path}: cannot be written: {error.strerror}") from error


def _written(records: Sequence[Record]) -> str:
    values = dict.fromkeys(name for record in records for name in record.values)
    tasks = dict.fromkeys(_column(*item) for record in records for item in record.tasks.items())
    head = [field.name for field in fields(Provenance)]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*head, *values, *tasks])
    for record in records:
        by_column = {_column(*item): item[1].value for item in record.tasks.items()}
        writer.writerow(
            [
                *astuple(record.origin),
                *(_digits(record.values.get(name)) for name in values),
                *(_digits(by_column.get(name)) for name in tasks),
            ]
        )
    return text.getvalue()


def _column(task: str, score: Score) -> str:
    return (_UP if score.higher_is_better else _DOWN) + task


def _digits(value: float | None) -> str:
    """Whole numbers exactly, others with six digits: far more than seeds can tell apart."""
    if value is None:
        return ""
    return str(int(value)) if value.is_integer() else f"{value:.6g}"


def _read(row: Mapping[str, str]) -> Record:
    about = {field.name: row[field.name] for field in fields(Provenance)}
    whole = {name: int(about[name]) for name in ("seed", "rounds", "clients")}
    given = {name: float(text) for name, text in row.items() if name not in about and text}
    return Record(
        Provenance(**{**about, **whole}),  # type: ignore[arg-type]
        {name: value for name, value in given.items() if name[0] not in (_UP, _DOWN)},
        {
            name[1:]: Score(value, name[0] == _UP)
            for name, value in given.items()
            if name[0] in (_UP, _DOWN)
        },
    )


def of_one_processor(records: Sequence[Record]) -> list[Record]:
    """The rows of the processor that has most of them; the first of equals.

    Args:
        records: The rows of a file.
    """
    count: dict[str, int] = {}
    for record in records:
        count[record.origin.cpu] = count.get(record.origin.cpu, 0) + 1
    most = max(count, key=lambda cpu: count[cpu], default="")
    return [record for record in records if record.origin.cpu == most]
