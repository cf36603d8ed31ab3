"""What a server proposes to its clients: a recipe's settings, never code."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import consort
from consort.core.algorithm import Algorithm
from consort.core.params import Params
from consort.core.validation import Table, checked
from consort.core.wire import encode
from consort.errors import UsageError
from consort.experiment.assembly import assemble
from consort.experiment.loading import recipe_of
from consort.experiment.recipe import Group, Recipe
from consort.experiment.run_folder import deciding
from consort.federation.federation import Federation

_NOT_OURS = ("clients", "groups", "data")
"""Keys of a recipe that are each client's own affair."""


@dataclass(frozen=True)
class Study:
    """One algorithm of a recipe with one seed, as both sides must have it."""

    recipe: Table
    algorithm: str
    seed: int
    version: str
    digest: str
    """Equal for equal studies: the hash that is compared before the first round."""

    @classmethod
    def of(cls, recipe: Recipe, algorithm: str, seed: int) -> Study:
        """What of a recipe decides the numbers, without whose data they are."""
        written = deciding(recipe.table, algorithm)
        settings = {key: value for key, value in written.items() if key not in _NOT_OURS}
        return cls.with_digest(settings, algorithm, seed, consort.__version__)

    @classmethod
    def with_digest(cls, recipe: Table, algorithm: str, seed: int, version: str) -> Study:
        """The study of these settings, code in files known by its content."""
        content = digest([_by_content(recipe), algorithm, seed, version])
        return cls(recipe, algorithm, seed, version, content)

    @property
    def table(self) -> Table:
        """As it is sent."""
        return asdict(self)

    def accepted(self, agreed: Recipe | None) -> Study:
        """This study as a client takes part in it; `agreed` is the only recipe it agrees to."""
        if self.version != consort.__version__:
            raise UsageError(
                f"it has Consort {consort.__version__}, the server {self.version}: install the "
                "same version on both"
            )
        if agreed is None:
            refuse_code(self.recipe)
            return Study.with_digest(self.recipe, self.algorithm, self.seed, self.version)
        if self.algorithm in agreed.algorithms:
            own = Study.of(agreed, self.algorithm, self.seed)
            if own.digest == self.digest:
                return own
        raise UsageError("its --recipe differs from the server's: use the same file on both")


def _by_content(value: Any) -> Any:
    """A table in which code in a file stands with its content in the place of its folder."""
    if isinstance(value, dict):
        return {key: _by_content(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_by_content(item) for item in value]
    if isinstance(value, str) and ".py:" in value:
        file, _, name = value.rpartition(":")
        path = Path(file)
        code = path.read_bytes() if path.is_file() else b""
        return [path.name, name, hashlib.blake2b(code, digest_size=16).hexdigest()]
    return value


def digest(value: Any) -> str:
    """A fingerprint of plain values."""
    text = json.dumps(value, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def refuse_code(value: Any) -> None:
    """A table from the wire must not name a file or module to run: only what is installed."""
    if isinstance(value, Mapping):
        for item in value.values():
            refuse_code(item)
    elif isinstance(value, list):
        for item in value:
            refuse_code(item)
    elif isinstance(value, str) and ":" in value:
        raise UsageError(
            f"the server's recipe names code of its own ({value}): get the recipe and the file, "
            "read them, and start the client with --recipe"
        )


@dataclass(frozen=True)
class Enrolment:
    """A client that takes part: its federation of one, and the algorithm."""

    study: Study
    name: str
    federation: Federation
    algorithm: Algorithm[Any]
    recipe: Recipe

    @classmethod
    def of(cls, study: Study, name: str, brings: Table, data: Path | None) -> Enrolment:
        """Loads what the client brings, as the study says it is to be treated."""
        own = {"name": name, "count": 1} | brings
        checked(Group, own, "")
        settings = {key: value for key, value in study.recipe.items() if value is not None}
        table = settings | {"groups": [own]}
        recipe = recipe_of(table, "the server's recipe")
        made = assemble(recipe, study.seed, data).federation
        (member,) = made.members.values()
        alone = replace(made, members={name: member}, client_ids=(), evaluation_ids=())
        algorithm = recipe.algorithm(study.algorithm)
        federation = alone.protected(*recipe.protections(study.algorithm))
        for protection in federation.protections:
            protection.check_client(federation, name, algorithm)
        return cls(study, name, federation, algorithm, recipe)

    def accompanied(self, companion: Table | None) -> Enrolment:
        """The same with the companion that the server has chosen for all."""
        if companion is None:
            return self
        refuse_code(companion)
        algorithm: Any = self.algorithm
        return replace(self, algorithm=replace(algorithm, companion=companion))

    def initial(self, companion: Table | None, number: int) -> Params:
        """The weights the model starts with, or another draw of them."""
        federation = self.federation.accompanied(companion) if companion else self.federation
        roster = federation.roster
        return roster.draw(self.name, number) if number else roster.model(self.name)

    @cached_property
    def description(self) -> dict[str, Any]:
        """All that a client tells of itself: sizes and names, no data."""
        member, data = self.federation.members[self.name], self.federation.data(self.name)
        initial = self.federation.initial(self.name)
        return {
            "model": {"name": member.model.name} | dict(member.model.options),
            "tasks": {
                task: {"metric": kind.metric, "higher_is_better": kind.higher_is_better}
                for task, kind in member.tasks.items()
            },
            "parameters": initial.size,
            "initial": hashlib.blake2b(encode(initial), digest_size=16).hexdigest(),
            "train": len(data.train),
            "validation": len(data.validation),
            "test": len(data.test),
            **({"local": dict(member.local)} if member.local else {}),
        }
