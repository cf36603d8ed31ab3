"""An experiment as a TOML file: a federation, algorithms, seeds, and what papers say about it."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, ClassVar

from pydantic import TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from consort.algorithm import Algorithm
from consort.algorithms.registry import find_algorithm
from consort.claims import Claim
from consort.compute import Compute
from consort.data.partition import Cut
from consort.data.partition.cut import SCHEME_OPTIONS
from consort.defences.poisoning import Attack
from consort.defences.privacy import Privacy
from consort.defences.robust import Robust
from consort.defences.secure import Secure
from consort.errors import UsageError
from consort.federation import Federation
from consort.metrics.writer_dependent import WriterDependent
from consort.models.multitask import BatchNormPolicy
from consort.models.registry import ModelSpec
from consort.privacy.obfuscation import FpDfsn
from consort.registry import did_you_mean
from consort.run import Schedule
from consort.types import Count, CountOrNone

Table = dict[str, Any]
_STRICT: Any = {"extra": "forbid"}


@dataclass(frozen=True, config=_STRICT)
class Group:
    """Clients that are alike. What is left out is taken from the top of the recipe."""

    name: str
    count: Count
    data: Table | None = None
    partition: Cut | None = None
    model: Table | list[Table] | None = None
    """One model, or several that the clients take in turns."""
    tasks: list[str] = field(default_factory=list)
    """Some of the data's tasks; all of them if empty."""
    classes: list[int] = field(default_factory=list)
    """Some of the data's classes, numbered anew from 0; all of them if empty."""
    obfuscation: Table | list[Table] | None = None
    """How the clients blur their images, or several ways that they take in turns."""


@dataclass(frozen=True, config=_STRICT)
class Unseen:
    """Users that no client trains on: some of the recipe's own data, or those of other data."""

    users: CountOrNone = 0
    """The last so many users of `data` at the top of the recipe; clients share the others."""
    data: Table = field(default_factory=dict)
    """Another data set."""


@dataclass(frozen=True, config=_STRICT)
class Published:
    """Numbers from a paper, to stand beside ours."""

    source: str
    metric: str
    values: dict[str, float]
    """By the algorithm's name in this recipe."""
    percent: bool = True
    """Whether the paper prints 61.2 where we measure 0.612."""
    higher_is_better: bool = True
    """Which way the metric points, if it is not one that stands for a task."""
    group: str = ""
    """Of which clients they are, if not of all."""
    task: str = ""
    """Of which task they are, if not of all that have this metric."""

    @property
    def narrow(self) -> str:
        """Of what in particular they are, in words."""
        return ", ".join(filter(None, (self.group, self.task)))


@dataclass(frozen=True, config=_STRICT)
class Recipe:
    """Everything that decides the numbers of an experiment."""

    algorithms: dict[str, Table]
    """By name: the options of an algorithm; `kind` names the algorithm if the name does not."""
    title: str = ""
    about: str = ""
    clients: Count | None = None
    groups: list[Group] = field(default_factory=list)
    data: Table = field(default_factory=dict)
    partition: Cut = field(default_factory=Cut)
    model: Table | list[Table] = field(default_factory=dict)
    batchnorm: BatchNormPolicy = "average"
    obfuscation: Table | list[Table] | None = None
    run: Schedule = field(default_factory=Schedule)
    compute: Compute = field(default_factory=Compute)
    local: Table = field(default_factory=dict)
    """Local training of every algorithm, unless its own `local` says otherwise."""
    robust: Table = field(default_factory=dict)
    """What the server does against wrong updates, unless an algorithm's own `robust` differs."""
    privacy: Table = field(default_factory=dict)
    """Noise on what clients send, unless an algorithm's own `privacy` differs."""
    secure: Table | None = None
    """If given, the server sees only means, unless an algorithm's own `secure` differs."""
    refuse_imprints: bool = False
    """Whether clients refuse models that are built to carry examples away."""
    attack: Table = field(default_factory=dict)
    """What some clients do wrong on purpose, unless an algorithm's own `attack` differs."""
    verification: WriterDependent | None = None
    """If given, every evaluation verifies signatures with the features of what is scored."""
    unseen: dict[str, Unseen] = field(default_factory=dict)
    """By name: users that are verified in the last round, and that no client trains on."""
    average_rounds: Count = 1
    """Over how many of the last rounds tables and claims take the values at the end."""
    seeds: list[int] = field(default_factory=lambda: [0])
    published: list[Published] = field(default_factory=list)
    claims: list[str] = field(default_factory=list)
    scales: dict[str, Table] = field(default_factory=dict)
    """Named changes to this recipe, such as `desk` and `paper`."""

    wire: ClassVar[TypeAdapter[Recipe]]

    def __post_init__(self) -> None:
        if (self.clients is None) == (not self.groups):
            raise UsageError("a recipe needs either `clients = 10` or [[groups]], and not both")
        if not self.algorithms:
            raise UsageError("a recipe needs at least one algorithm, such as [algorithms.fedavg]")
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise UsageError(f"seeds = {self.seeds}: give at least one, and each only once")
        for table in self.published:
            for name in table.values:
                if name not in self.algorithms:
                    where = f"published numbers ({table.source})"
                    raise UsageError(f"{where}: no algorithm {did_you_mean(name, self.algorithms)}")
        names = [group.name for group in self.groups]
        for name in names:
            if names.count(name) > 1:
                raise UsageError(f"two groups are named {name!r}: give each a name of its own")
        self._check_unseen()

    def _check_unseen(self) -> None:
        if self.unseen and self.verification is None:
            raise UsageError("[unseen] says who is verified in the end: add [verification]")
        for name, table in self.unseen.items():
            if not name.isidentifier():
                raise UsageError(f"unseen.{name}: a name has only letters, digits and _")
            if bool(table.users) == bool(table.data):
                raise UsageError(f"unseen.{name} needs either `users = 10` or `data`, and not both")
        if sum(bool(table.users) for table in self.unseen.values()) > 1:
            raise UsageError("only one table of [unseen] can hold users out of the recipe's data")

    @property
    def held_out(self) -> int:
        """How many users of `data` no client gets."""
        return sum(table.users for table in self.unseen.values())

    @property
    def all_groups(self) -> list[Group]:
        """The groups with everything filled in that they take from the top."""
        groups = self.groups or [Group(name="client", count=self.clients or 1)]
        return [
            Group(
                name=group.name,
                count=group.count,
                data=group.data or self.data,
                partition=group.partition or self.partition,
                model=group.model or self.model,
                obfuscation=self.obfuscation if group.obfuscation is None else group.obfuscation,
                tasks=group.tasks,
                classes=group.classes,
            )
            for group in groups
        ]

    def models_of(self, group: Group) -> list[ModelSpec]:
        """The checked models of a group, to be taken in turns."""
        tables = group.model if isinstance(group.model, list) else [group.model or {}]
        return [ModelSpec.of(table) for table in tables or [{}]]

    def obfuscations_of(self, group: Group) -> list[FpDfsn | None]:
        """The checked obfuscations of a group, to be taken in turns; none, unless it has some."""
        if not isinstance(group.obfuscation, list):
            found = group.obfuscation
            return [None if found is None else checked(FpDfsn, found, "obfuscation")]
        return [checked(FpDfsn, table, "obfuscation") for table in group.obfuscation] or [None]

    def algorithm(self, name: str) -> Algorithm[Any]:
        """One of the recipe's algorithms with its checked options."""
        if name not in self.algorithms:
            raise UsageError(f"the recipe has no algorithm {did_you_mean(name, self.algorithms)}")
        options = {k: v for k, v in self.algorithms[name].items() if k not in _AROUND}
        kind = find_algorithm(str(options.pop("kind", name)))
        own = options.get("local", {})
        options["local"] = self.local | own if isinstance(own, dict) else own
        algorithm: Algorithm[Any] = checked(kind, options, f"algorithms.{name}")
        return algorithm

    def around(self, name: str) -> Around:
        """What is done around one of the recipe's algorithms."""
        own = self.algorithms[name]
        tables = {key: merged(getattr(self, key) or {}, own.get(key, {})) for key in _AROUND}
        private = self.privacy or "privacy" in own
        secure = self.secure is not None or "secure" in own
        return Around(
            checked(Robust, tables["robust"], "robust"),
            checked(Attack, tables["attack"], "attack"),
            checked(Privacy, tables["privacy"], "privacy") if private else None,
            checked(Secure, tables["secure"], "secure") if secure else None,
        )


@dataclass(frozen=True)
class Around:
    """Defences and attacks, which no algorithm knows of."""

    robust: Robust
    attack: Attack
    privacy: Privacy | None
    secure: Secure | None

    def clients(self, federation: Federation, seed: int) -> Federation:
        """The federation as it is then: attackers' data, and noise and masks on what is sent."""
        return self.attack.on_data(federation, seed).protected(self.privacy, self.secure)


_AROUND = ("robust", "attack", "privacy", "secure")
Recipe.wire = TypeAdapter(Recipe)


def checked(kind: Any, options: Mapping[str, Any], where: str) -> Any:
    """A dataclass made from a table; what does not fit is said in one sentence."""
    try:
        return TypeAdapter(kind).validate_python(dict(options))
    except ValidationError as error:
        raise UsageError(explain(error, kind, where)) from error


_UNKNOWN = ("unexpected_keyword_argument", "extra_forbidden")


def explain(error: ValidationError, kind: Any, where: str) -> str:
    """The first thing that is wrong with a table, with its key."""
    first = min(error.errors(), key=lambda found: found["type"] not in _UNKNOWN)
    path = [str(part) for part in first["loc"]]
    key = ".".join(filter(None, [where, *path]))
    match first["type"]:
        case "unexpected_keyword_argument" | "extra_forbidden":
            return f"unknown key {key}: {did_you_mean(path[-1], _known_keys(kind, path[:-1]))}"
        case "missing":
            return f"key {key} is missing"
        case "value_error":
            return f"{key}: {first['ctx']['error']}"
    return f"key {key}: {first['msg'].replace('Input', 'it', 1)}, found {first['input']!r}"


def _known_keys(kind: Any, path: Sequence[str]) -> list[str]:
    """The fields of the dataclass at a path inside another, as far as it can be followed."""
    fields = TypeAdapter(kind).json_schema(mode="validation")
    definitions = fields.get("$defs", {})
    node = fields
    for step in ["", *path]:
        node = node.get("properties", {}).get(step, node) if step else node
        node = node.get("items", node)
        node = next((option for option in node.get("anyOf", ()) if "$ref" in option), node)
        if "$ref" in node:
            node = definitions[node["$ref"].rsplit("/", 1)[-1]]
    return list(node.get("properties", {}))


def load_recipe(path: Path, scale: str | None = None, changes: Sequence[str] = ()) -> Recipe:
    """Reads and checks a recipe; `changes` are lines such as `run.rounds=5`."""
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not valid TOML: {error}") from error
    if scale is not None:
        scales = table.get("scales", {})
        if scale not in scales:
            raise UsageError(f"{path} has no scale {did_you_mean(scale, scales)}")
        table = merged(table, scales[scale])
    for change in changes:
        table = merged(table, _parsed(change))
    if table.get("privacy") == {}:
        raise UsageError(f"{path}: [privacy] is empty: give it a level, or remove it")
    return recipe_of(anchored(table, path.parent), str(path))


def recipe_of(table: Mapping[str, Any], source: str) -> Recipe:
    """Checks a recipe that is already a table, algorithms and models included."""
    try:
        recipe: Recipe = checked(Recipe, table, "")
        for group in recipe.all_groups:
            recipe.models_of(group)
            recipe.obfuscations_of(group)
        for name in recipe.algorithms:
            recipe.algorithm(name)
            recipe.around(name)
        for claim in recipe.claims:
            Claim.parse(claim, list(recipe.algorithms))
    except UsageError as error:
        raise UsageError(f"{source}: {error}") from error
    return recipe


def anchored(value: Any, folder: Path) -> Any:
    """A table in which a user's `file.py:name` that lies beside the recipe has its whole path.

    So a run finds it again wherever it is resumed.
    """
    if isinstance(value, dict):
        return {key: anchored(item, folder) for key, item in value.items()}
    if isinstance(value, list):
        return [anchored(item, folder) for item in value]
    if isinstance(value, str) and ".py:" in value:
        file, _, name = value.partition(":")
        if (folder / file).is_file():
            return f"{(folder / file).resolve()}:{name}"
    return value


def merged(table: Mapping[str, Any], changes: Mapping[str, Any]) -> Table:
    """A table with another laid over it, key by key.

    Options belong to what they are options of: a change of `name` (of data, of a model) takes
    nothing over from the old table, and a change of `by` (of a partition) not the old scheme's.
    """
    result = dict(table)
    if changes.get("name", result.get("name")) != result.get("name"):
        result = {}
    if changes.get("by", result.get("by")) != result.get("by"):
        result = {key: value for key, value in result.items() if key not in SCHEME_OPTIONS}
    for key, value in changes.items():
        old = result.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            value = merged(old, value)
        result[key] = value
    return result


def _parsed(change: str) -> Table:
    key, equals, value = change.partition("=")
    if not equals:
        raise UsageError(f"--set {change}: write key=value, such as run.rounds=5")
    for text in (value, json.dumps(value)):
        try:
            return tomllib.loads(f"{key.strip()} = {text}")
        except tomllib.TOMLDecodeError:
            continue
    raise UsageError(f"--set {change}: {key!r} is not a key, such as run.rounds")
