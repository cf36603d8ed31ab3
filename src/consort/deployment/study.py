"""What a server proposes to its clients: the settings of a recipe, never code."""

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

_CLIENT_KEYS = ("clients", "groups", "data")
"""Keys of a recipe that every client decides on its own."""


@dataclass(frozen=True)
class Study:
    """One algorithm of a recipe with one seed; server and clients must have the same."""

    recipe: Table
    algorithm: str
    seed: int
    version: str
    digest: str
    """A hash of everything above, compared before the first round."""

    @classmethod
    def of(cls, recipe: Recipe, algorithm: str, seed: int) -> Study:
        """The study of a recipe: the settings that determine the results, without the clients' own.

        Args:
            recipe: The recipe.
            algorithm: The name of one of its algorithms.
            seed: The seed of the run.
        """
        written = deciding(recipe.table, algorithm)
        settings = {key: value for key, value in written.items() if key not in _CLIENT_KEYS}
        return cls.with_digest(settings, algorithm, seed, consort.__version__)

    @classmethod
    def with_digest(cls, recipe: Table, algorithm: str, seed: int, version: str) -> Study:
        """A study of these settings, with its digest; code in files is identified by its content.

        Args:
            recipe: The settings.
            algorithm: The name of the algorithm.
            seed: The seed of the run.
            version: The version of Consort.
        """
        content = digest([_by_content(recipe), algorithm, seed, version])
        return cls(recipe, algorithm, seed, version, content)

    @property
    def table(self) -> Table:
        """The study as it is sent."""
        return asdict(self)

    def accepted(self, agreed: Recipe | None) -> Study:
        """Checks whether a client takes part in this study.

        Args:
            agreed: The only recipe that the client accepts; `None` accepts any without code.

        Returns:
            The study with a digest that the client has computed itself.

        Raises:
            UsageError: If the versions or recipes differ, or the study names code.
        """
        if self.version != consort.__version__:
            raise UsageError(
                f"this client has Consort {consort.__version__}, the server {self.version}: "
                "install the same version on both"
            )
        if agreed is None:
            refuse_code(self.recipe)
            return Study.with_digest(self.recipe, self.algorithm, self.seed, self.version)
        if self.algorithm in agreed.algorithms:
            own = Study.of(agreed, self.algorithm, self.seed)
            if own.digest == self.digest:
                return own
        raise UsageError(
            "the client's --recipe differs from the server's: use the same file on both"
        )


def _by_content(value: Any) -> Any:
    """The same table with references to code files replaced by hashes of their content."""
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
    """A hash of plain values (anything that JSON can hold)."""
    text = json.dumps(value, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def refuse_code(value: Any) -> None:
    """Checks that a table from the network names no code files or modules to run.

    Raises:
        UsageError: If it does.
    """
    if isinstance(value, Mapping):
        for item in value.values():
            refuse_code(item)
    elif isinstance(value, list):
        for item in value:
            refuse_code(item)
    elif isinstance(value, str) and ":" in value:
        raise UsageError(
            f"the server's recipe refers to code of its own ({value}): get the recipe and this "
            "file, review them, and start the client with --recipe"
        )


@dataclass(frozen=True)
class Enrolment:
    """A client that takes part in a study: a federation of one member, and the algorithm."""

    study: Study
    name: str
    federation: Federation
    algorithm: Algorithm[Any]
    recipe: Recipe

    @classmethod
    def of(cls, study: Study, name: str, brings: Table, data: Path | None) -> Enrolment:
        """Loads a client's data and builds its model, as the study prescribes.

        Args:
            study: The study to take part in.
            name: The name of the client.
            brings: The client's data, model and tasks, as in a group of a recipe.
            data: The folder with the client's data.

        Raises:
            UsageError: If the study and what the client brings do not fit together.
        """
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
        """The same with the companion model that the server has chosen for all clients."""
        if companion is None:
            return self
        refuse_code(companion)
        algorithm: Any = self.algorithm
        return replace(self, algorithm=replace(algorithm, companion=companion))

    def initial(self, companion: Table | None, number: int) -> Params:
        """The initial weights of the client's model.

        Args:
            companion: The companion model, if there is one.
            number: Which draw of the random weights; 0 is the first.
        """
        federation = self.federation.accompanied(companion) if companion else self.federation
        roster = federation.roster
        return roster.draw(self.name, number) if number else roster.model(self.name)

    @cached_property
    def description(self) -> dict[str, Any]:
        """Everything that the client tells the server about itself: sizes and names, no data."""
        member, data = self.federation.members[self.name], self.federation.data(self.name)
        initial = self.federation.initial(self.name)
        measured: dict[str, Any] = {}
        for extra in self.federation.extras:
            measured |= extra.tasks
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
            **({"measured": measured} if measured else {}),
            **({"local": dict(member.local)} if member.local else {}),
        }
