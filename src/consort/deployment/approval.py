"""The studies that a client was asked to take part in, and what its owner said to each of them.

A study is known by a hash of its settings, of the versions of Consort, PyTorch and the plug-ins
that it uses, and of the client's own code for it. Whatever of these changes needs a new yes.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

import torch

from consort.core.files import write_file
from consort.core.permission import FILES
from consort.core.plugins import entries
from consort.deployment.enrolment import Candidate
from consort.deployment.study import by_content, digest
from consort.errors import Failure, Tellable, UsageError

State = Literal["waiting", "approved", "refused"]
WAITING = "is waiting for its owner's approval"
"""What the server is told about a client whose owner has not decided yet."""
_MOST_WAITING = 100


@dataclass(frozen=True)
class StudyEntry:
    """A study as its owner sees it."""

    hash: str
    """Identifies the study, with the versions and the code that it would use here."""
    title: str
    algorithm: str
    seed: int
    rounds: int
    protections: list[str]
    leaving: dict[str, int]
    """The bytes of the parameters that may be in an answer, by role."""
    versions: dict[str, str]
    """The versions of Consort, PyTorch and the plug-ins."""
    recipe: dict[str, Any] = field(default_factory=dict)
    """All settings."""
    state: State = "waiting"
    time: float = field(default_factory=time.time)
    """When the state changed, in seconds since 1970."""

    @classmethod
    def of(cls, candidate: Candidate, named: Collection[tuple[str, str]]) -> StudyEntry:
        """The entry of a study.

        Args:
            candidate: The study, and what the client brings.
            named: Kinds and names of all that the study uses.
        """
        study, recipe = candidate.study, candidate.recipe
        versions = {"consort": study.version, "torch": torch.__version__} | _packages(named)
        code = sorted(str(by_content(name)) for _, name in named if ".py:" in name)
        return cls(
            digest([study.digest, versions, code]),
            study.title,
            study.algorithm,
            study.seed,
            recipe.run.rounds,
            [protection.table for protection in recipe.protections(study.algorithm)],
            candidate.leaving,
            versions,
            study.recipe,
        )

    @property
    def facts(self) -> dict[str, Any]:
        """What the log says about the study."""
        keys = ("hash", "title", "algorithm", "seed", "rounds", "protections", "versions")
        return {key: getattr(self, key) for key in keys}

    @property
    def lines(self) -> list[str]:
        """What the owner has to know, line by line."""
        leaving = [f"{role} {size:,} bytes" for role, size in self.leaving.items()]
        return [
            f"study {self.hash[:8]}: {self.title or 'without a title'}",
            f"  algorithm {self.algorithm}, seed {self.seed}, {self.rounds} rounds",
            f"  leaves this client, at most, in an answer: {', '.join(leaving) or 'not known'};"
            " and numbers such as scores and counts",
            f"  protections: {', '.join(self.protections) or 'none'}",
            f"  versions: {', '.join(f'{k} {v}' for k, v in self.versions.items())}",
        ]


class Studies:
    """The studies of a client, in a folder of its credentials.

    Args:
        folder: The folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def of(cls, credentials: Path) -> Studies:
        """The studies of the client with these credentials."""
        return cls(credentials / "studies")

    def all(self) -> list[StudyEntry]:
        """All studies, the latest first."""
        found = [self._read(path) for path in self.folder.glob("*.json")]
        return sorted(found, key=lambda entry: -entry.time)

    def check(self, entry: StudyEntry, show: Callable[[str], Any]) -> None:
        """Checks that the owner has approved of a study; one that is new is shown to him.

        Args:
            entry: The study.
            show: Prints a line for the owner.

        Raises:
            Tellable: If the owner has not approved of it.
        """
        path = self._path(entry.hash)
        if not path.exists():
            if sum(known.state == "waiting" for known in self.all()) >= _MOST_WAITING:
                raise Tellable("too many studies wait for its owner's approval")
            self._write(entry)
            for line in entry.lines:
                show(line)
        state = self._read(path).state
        if state == "refused":
            raise Tellable("its owner does not take part in this study")
        if state != "approved":
            raise Tellable(WAITING)

    def decide(self, start: str, state: Literal["approved", "refused"]) -> StudyEntry:
        """Writes down what the owner says to a study.

        Args:
            start: The first digits of its hash, at least four.
            state: What the owner says.

        Returns:
            The study.

        Raises:
            UsageError: If no study, or more than one, has a hash that begins so.
        """
        if not re.fullmatch(r"[0-9a-f]{4,32}", start):
            raise UsageError(f"{start!r} is not a study: give at least 4 digits of its hash")
        found = [entry for entry in self.all() if entry.hash.startswith(start)]
        if len(found) != 1:
            raise UsageError(
                f"{len(found)} studies in {self.folder} begin with {start}: consort site studies "
                "lists them"
            )
        decided = StudyEntry(**(vars(found[0]) | {"state": state, "time": time.time()}))
        self._write(decided)
        return decided

    def _path(self, hash: str) -> Path:
        return self.folder / f"{hash}.json"

    def _write(self, entry: StudyEntry) -> None:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_file(self._path(entry.hash), json.dumps(vars(entry), indent=1).encode(), durable=True)

    def _read(self, path: Path) -> StudyEntry:
        try:
            entry = StudyEntry(**json.loads(path.read_text("utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise Failure(f"{path} is damaged: delete it, and approve the study again") from error
        if path.stem != entry.hash:
            raise Failure(f"{path} is that of another study: delete it")
        return entry


def _packages(named: Collection[tuple[str, str]]) -> dict[str, str]:
    """The versions of the packages whose plug-ins are used."""
    found = {}
    for kind, name in sorted(named):
        entry = entries(kind).get(name) if kind != FILES and ":" not in name else None
        if entry and entry.package:
            try:
                found[entry.package] = version(entry.package)
            except PackageNotFoundError:
                found[entry.package] = "unknown"
    return found
