"""Score files in Bob's CSV layout, which its tools `bob bio metrics` and `bob bio det` read too.

A row is one comparison. Bob's readers take equal subjects for a genuine comparison, so the probe of
a skilled forgery has a subject of its own, beside its `probe_attack_type`.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from consort.core.files import write_file
from consort.errors import UsageError
from consort.metrics.biometric import Scores

DEVELOPMENT, EVALUATION = "scores-dev.csv", "scores-eval.csv"
RANDOM, SKILLED = "random", "skilled"
"""The kinds of impostors: other people with their own samples, and forgers of this person's."""

_REFERENCE, _PROBE, _SCORE = "bio_ref_subject_id", "probe_subject_id", "score"
_KEYS = "probe_key", "key"
_ATTACK = "probe_attack_type"
_WRITTEN = (
    _REFERENCE, "bio_ref_reference_id", _PROBE, "probe_reference_id", _KEYS[0], _ATTACK, _SCORE,
)  # fmt: skip


class ScoredProbe(NamedTuple):
    """One row of a score file."""

    reference: str
    """The subject whom the probe claims to be."""
    probe: str
    """The subject whose sample it is."""
    key: str
    """The name of the probe."""
    attack: str
    """The kind of attack; empty if it is none."""
    score: float


@dataclass(frozen=True)
class ScoreTable:
    """The comparisons of one or several files."""

    rows: tuple[ScoredProbe, ...]

    @property
    def users(self) -> list[str]:
        """The subjects with references, in the order of the rows."""
        return list(dict.fromkeys(row.reference for row in self.rows))

    @property
    def kinds(self) -> list[str]:
        """Which kinds of impostors there are."""
        return [kind for kind in (RANDOM, SKILLED) if self.scores(kind).size]

    def scores(self, kind: str | None = None, user: str | None = None) -> Scores:
        """Scores of one kind.

        Args:
            kind: A kind of impostors, or `None` for genuine comparisons.
            user: Only comparisons with the references of this user.
        """
        found = self._columns
        chosen = found.kinds == (kind or "")
        if user is not None:
            chosen = chosen & (found.references == user)
        scores: Scores = found.scores[chosen]
        return scores

    @cached_property
    def _columns(self) -> _Columns:
        return _Columns(
            np.array([row.reference for row in self.rows], dtype=object),
            np.array([_kind(row) for row in self.rows], dtype=object),
            np.array([row.score for row in self.rows], dtype=np.float64),
        )

    def save(self, path: Path) -> None:
        """Writes the comparisons as a CSV file."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(_WRITTEN)
        for row in self.rows:
            writer.writerow(
                (row.reference, row.reference, row.probe, row.probe, row.key, row.attack,
                 repr(row.score))
            )  # fmt: skip
        write_file(path, text.getvalue().encode())

    @classmethod
    def load(cls, paths: Iterable[Path]) -> ScoreTable:
        """Reads files that `save` or Bob wrote, one after the other.

        Args:
            paths: The files.

        Raises:
            UsageError: If a file is missing or has another layout, or if all of them together have
                no genuine comparison or no impostor.
        """
        files = list(paths)
        table = cls(tuple(row for path in files for row in _read(path)))
        names = ", ".join(map(str, files))
        if not table.scores().size:
            raise UsageError(f"{names}: no genuine comparison, so there is nothing to measure")
        if not table.kinds:
            raise UsageError(f"{names}: no impostor and no forgery, so there is nothing to measure")
        return table


class _Columns(NamedTuple):
    references: NDArray[np.object_]
    kinds: NDArray[np.object_]
    scores: Scores


def _kind(row: ScoredProbe) -> str:
    if row.attack:
        return SKILLED
    return "" if row.reference == row.probe else RANDOM


def _read(path: Path) -> list[ScoredProbe]:
    if not path.is_file():
        raise UsageError(f"there is no file {path}")
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            names = reader.fieldnames or ()
            key = next((name for name in _KEYS if name in names), None)
            if key is None or not {_REFERENCE, _PROBE, _SCORE} <= set(names):
                raise UsageError(
                    f"{path} is no score file: it needs the columns {_REFERENCE}, {_PROBE}, "
                    f"{_KEYS[0]} and {_SCORE}"
                )
            return [_comparison(path, number, row, key) for number, row in enumerate(reader, 2)]
    except (UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path} is no score file: it is not text in UTF-8") from error


def _comparison(path: Path, line: int, row: dict[str, str | None], key: str) -> ScoredProbe:
    reference, probe, name, score = (row[column] for column in (_REFERENCE, _PROBE, key, _SCORE))
    try:
        value = float(score or "")
    except ValueError:
        value = math.nan
    if math.isnan(value) or not reference or not probe:
        raise UsageError(f"{path}, line {line}: a subject or the score is missing or no number")
    return ScoredProbe(reference, probe, name or "", row.get(_ATTACK) or "", value)
