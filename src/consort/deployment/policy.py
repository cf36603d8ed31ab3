"""What a client runs for others: names that its owner allows, and limits.

The policy is the file `policy.toml` in the client's credentials; without it, the defaults below.
It is a list of what is allowed. While a client works for a server, each name that is looked up and
each file that is named must be on it, or be something that the owner has chosen himself.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from inspect import signature
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge

from consort.core.bounds import PositiveInt
from consort.core.permission import FILES
from consort.core.plugins import entries
from consort.core.registry import load_object
from consort.core.validation import Table, checked
from consort.deployment.counts import Counts
from consort.deployment.privacy_ledger import PrivacyLimit
from consort.deployment.study import Study
from consort.errors import Refused, UsageError

FILE = "policy.toml"
_FOR_SIMULATIONS = {"attack"}
_BY_TASKS = ("augmentations", "balancings")
_DEPTH = 200  # layers in a row, which take time and memory before they have any weights
_LARGEST = 1_000_000  # any other number in a recipe


@dataclass(frozen=True)
class StudyLimits:
    """The most that a client does for a study, and the fewest that it does it with."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    rounds: PositiveInt = 10_000
    """The number of rounds."""
    epochs: PositiveInt = 100
    """The epochs of any training in a round, fine-tuning included."""
    steps: PositiveInt = 100_000
    """The steps of any training in a round, where a recipe counts steps."""
    threads: PositiveInt = 64
    """The threads that compute."""
    answer: PositiveInt = 1 << 30
    """The bytes of the parameters of a model, and of an answer."""
    hidden_among: Annotated[int, Ge(2)] = 2
    """The fewest clients, itself included, among whom secure aggregation hides an answer."""


@dataclass(frozen=True)
class Policy:
    """What a client runs for others. A list that is not given allows all that Consort brings."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    approve: Literal["ask", "listed"] = "ask"
    """Whether the owner is asked about each study, or approves of all that the lists allow."""
    algorithms: list[str] | None = None
    """The algorithms."""
    models: list[str] | None = None
    """The models."""
    data: list[str] | None = None
    """The data sets that the server may name besides the client's own; generated ones if not given.
    """
    evaluations: list[str] | None = None
    """The evaluations besides the metrics of tasks."""
    obfuscations: list[str] | None = None
    """The ways of obfuscating images."""
    protections: list[str] | None = None
    """The protections; attacks, which are for simulations, only if they are listed."""
    limits: StudyLimits = field(default_factory=StudyLimits)
    """The most that the client does for a study."""
    privacy: PrivacyLimit | None = None
    """The limit of the client's data over all runs; None for none."""
    counts: Counts = field(default_factory=Counts)
    """How exactly the client tells how many examples it has."""

    @classmethod
    def read(cls, folder: Path) -> Policy:
        """Reads the policy of a client.

        Args:
            folder: The folder of its credentials.

        Raises:
            UsageError: If the file is not valid.
        """
        path = folder / FILE
        try:
            table = tomllib.loads(path.read_text("utf-8"))
        except FileNotFoundError:
            return cls()
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror}") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise UsageError(f"{path} is not valid TOML: {error}") from error
        policy: Policy = checked(cls, table, str(path))
        return policy

    def permits(self, kind: str, name: str) -> bool:
        """Whether a server may name something.

        Args:
            kind: A field of `Plugin`, or `FILES`.
            name: The name.
        """
        if kind == FILES or ":" in name or name not in entries(kind):
            return False
        if kind in _BY_TASKS:  # the client's own tasks name them as well
            return True
        listed: list[str] | None = getattr(self, "data" if kind == "datasets" else kind)
        if listed is not None:
            return name in listed
        if entries(kind)[name].package or name in _FOR_SIMULATIONS:
            return False
        return kind != "datasets" or _is_generated(name)

    def check(self, study: Study) -> None:
        """Checks how much a study asks a client to do.

        Args:
            study: The study.

        Raises:
            Refused: If it is more than the policy allows.
        """
        self.check_numbers(study.recipe)
        for table in _tables(study.recipe, "data"):
            size = math.prod(max(1.0, abs(value)) for _, value in _numbers(table))
            self.check_bytes(size, "a data set that the server names")

    def check_numbers(self, table: Mapping[str, Any]) -> None:
        """Checks the numbers of a table that a server sent.

        Args:
            table: A recipe, or a part of one.

        Raises:
            Refused: If one of them is more than the policy allows.
        """
        for key, value in _numbers(table):
            word, most = self._most(key)
            if abs(value) > most:
                raise Refused(f"its policy does not allow {word} above {most}")

    def check_bytes(self, count: float, what: str) -> None:
        """Checks the size of something.

        Args:
            count: Its number of bytes.
            what: What it is.

        Raises:
            Refused: If it is too large.
        """
        if count > self.limits.answer:
            raise Refused(f"{what} is larger than its policy allows ({self.limits.answer} bytes)")

    def _most(self, key: str) -> tuple[str, int]:
        """What an option with a name counts, and the most that is allowed."""
        most = {
            "rounds": self.limits.rounds,
            "epochs": self.limits.epochs,
            "repetitions": self.limits.epochs,
            "steps": self.limits.steps,
            "threads": self.limits.threads,
            "depth": _DEPTH,
            "depths": _DEPTH,
        }
        word = key.rpartition("_")[2]
        return (word, most[word]) if word in most else ("a number", _LARGEST)


@cache
def _is_generated(dataset: str) -> bool:
    """Whether a data set of Consort is generated, so that no file is read for it."""
    loader = load_object(entries("datasets")[dataset].place)
    return "folder" not in signature(loader).parameters


def _tables(value: Any, wanted: str) -> Iterator[Any]:
    """All values in a recipe under one key, wherever it stands."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            if name == wanted:
                yield item
            yield from _tables(item, wanted)
    elif isinstance(value, list):
        for item in value:
            yield from _tables(item, wanted)


def _numbers(value: Any, key: str = "") -> Iterator[tuple[str, float]]:
    """All numbers of a recipe, each with the last key that leads to it."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _numbers(item, name)
    elif isinstance(value, list):
        for item in value:
            yield from _numbers(item, key)
    elif isinstance(value, int | float):
        yield key, value


@dataclass
class Judge:
    """Decides what may be named while a client works for a server: see `core.permission`.

    Args:
        policy: What the server may name.
        own: Kinds and names that the owner of the client has chosen himself.
    """

    policy: Policy
    own: set[tuple[str, str]]
    trusting: bool = False
    """Whether all that is named now is the owner's own choice, to be remembered."""
    named: set[tuple[str, str]] = field(default_factory=set)
    """All that was named and permitted."""

    def __call__(self, kind: str, name: str) -> None:
        """Judges a name.

        Raises:
            Refused: If it is neither the owner's choice nor permitted by the policy.
        """
        if self.trusting:
            self.own.add((kind, name))
        elif (kind, name) not in self.own and not self.policy.permits(kind, name):
            raise Refused(f"its policy does not allow {_words(kind, name)}")
        self.named.add((kind, name))


def own_names(brings: Table) -> set[tuple[str, str]]:
    """What a client brings: kinds and names, and options that may be the names of files.

    Args:
        brings: The client's data, model and tasks, as in a group of a recipe.
    """
    found = set()
    for key, kind in (("data", "datasets"), ("model", "models"), ("obfuscation", "obfuscations")):
        tables = brings.get(key) or []
        for table in tables if isinstance(tables, list) else [tables]:
            found.add((kind, str(table.get("name", ""))))
            found |= {(FILES, text) for text in table.values() if isinstance(text, str)}
    found.add(("augmentations", str(brings.get("local", {}).get("augment", ""))))
    return found


def _words(kind: str, name: str) -> str:
    """What was named, without a path or a place."""
    if kind == FILES:
        return "a server to name files"
    if not re.fullmatch(r"[\w.+-]{1,100}", name):
        return "a server to name code"
    return f"{kind} such as {name!r}"
