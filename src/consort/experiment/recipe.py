"""An experiment as a TOML file: a federation, algorithms, seeds, and published results."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from pydantic_core import to_json
from torch import Tensor

from consort.algorithms._server_optimizer import with_server_optimizer
from consort.algorithms.registry import find_algorithm
from consort.core.algorithm import Algorithm
from consort.core.bounds import PositiveInt
from consort.core.plugins import find
from consort.core.registry import did_you_mean
from consort.core.validation import Table, adapter, checked
from consort.data.partition import Cut
from consort.errors import UsageError
from consort.experiment.sweep import Sweep
from consort.experiment.tables import merged
from consort.federation.protection import Protection
from consort.models.multitask import BatchNormPolicy
from consort.models.registry import ModelSpec
from consort.results.table import Published
from consort.run.schedule import Schedule
from consort.training.compute import Compute
from consort.training.evaluation import Evaluation
from consort.training.local import LocalTraining

Obfuscation = Callable[..., Tensor]
"""Called with prepared inputs and `seed`, returns inputs that reveal less about persons."""


@dataclass(frozen=True)
class Group:
    """Clients of one kind. What is left out is taken from the top level of the recipe."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    name: str
    """The name of the group, from which the names of its clients are made."""
    count: PositiveInt
    """The number of clients."""
    data: Table | None = None
    """The data set and its options."""
    partition: Cut | None = None
    """How the data are partitioned among the clients."""
    model: Table | list[Table] | None = None
    """One model, or several that the clients take in turn."""
    tasks: list[str] = field(default_factory=list)
    """Some of the data set's tasks; all if empty."""
    classes: list[int] = field(default_factory=list)
    """Some of the data set's classes, renumbered from 0; all if empty."""
    obfuscation: Table | list[Table] | None = None
    """How the clients obfuscate their images, or several ways that they take in turn."""
    local: Table = field(default_factory=dict)
    """Changes to the local training of every algorithm, for these clients."""


@dataclass(frozen=True)
class ServerSide:
    """What the server has besides what clients send."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    data: Table
    """A data set and its options, for algorithms that train on the server; labels are not used."""
    examples: PositiveInt | None = None
    """How many of its examples the server has, drawn by chance; all if not given."""


@dataclass(frozen=True)
class Recipe:
    """Everything that determines the results of an experiment.

    Raises:
        UsageError: If keys contradict each other, or a required one is missing.

    Examples:
        >>> from consort import Recipe
        >>> recipe = Recipe(
        ...     clients=10,
        ...     data={"name": "synthetic_vectors"},
        ...     model={"name": "mlp"},
        ...     local={"lr": 0.1},
        ...     algorithms={"fedavg": {}, "fedprox": {"mu": 0.01}},
        ...     seeds=[0, 1],
        ... )
        >>> recipe.algorithm("fedprox").local.lr
        0.1
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    algorithms: dict[str, Table]
    """The options of each algorithm by name; `kind` is the algorithm, if it is not the name."""
    title: str = ""
    """The title of the report."""
    about: str = ""
    """A description for the report."""
    clients: PositiveInt | None = None
    """The number of clients, if there are no groups."""
    groups: list[Group] = field(default_factory=list)
    """Clients of several kinds, in place of `clients`."""
    data: Table = field(default_factory=dict)
    """The data set and its options."""
    partition: Cut = field(default_factory=Cut)
    """How the data are partitioned among the clients."""
    server: ServerSide | None = None
    """The data of the server, for algorithms that train on it."""
    model: Table | list[Table] = field(default_factory=dict)
    """The clients' model, or several that they take in turn."""
    batchnorm: BatchNormPolicy = "average"
    """What happens to the running statistics of BatchNorm: see `MultiTaskModel`."""
    obfuscation: Table | list[Table] | None = None
    """How clients obfuscate their images, or several ways that they take in turn."""
    run: Schedule = field(default_factory=Schedule)
    """The number of rounds, and how they proceed."""
    compute: Compute = field(default_factory=Compute)
    """Settings of the computation."""
    local: Table = field(default_factory=dict)
    """The local training of every algorithm, unless its own `local` differs."""
    robust: Table | None = None
    """The server's defence against wrong updates, unless an algorithm's own `robust` differs."""
    privacy: Table | None = None
    """Differential privacy of what clients send, unless an algorithm's own `privacy` differs."""
    secure: Table | None = None
    """Secure aggregation, so that the server sees only means, unless an algorithm's own differs."""
    refuse_imprints: bool = False
    """Whether clients refuse models that are built to extract training examples."""
    attack: Table | None = None
    """Attacks by some of the clients, unless an algorithm's own `attack` differs."""
    protection: dict[str, Table] = field(default_factory=dict)
    """By name: the options of protections that plug-ins bring."""
    verification: Table | None = None
    """If given, evaluations also verify signatures with the features of the scored model."""
    unseen: dict[str, Table] = field(default_factory=dict)
    """By name: users that are verified after the last round and that no client trains on."""
    evaluations: dict[str, Table] = field(default_factory=dict)
    """The options of further evaluations of plug-ins, by name."""
    average_rounds: PositiveInt = 1
    """The number of last rounds over which final values in tables and claims are averaged."""
    seeds: list[int] = field(default_factory=lambda: [0])
    """The seeds; every algorithm is run once per seed."""
    published: list[Published] = field(default_factory=list)
    """Published results to compare with."""
    claims: list[str] = field(default_factory=list)
    """Claims that are checked on the results."""
    sweep: Sweep | None = None
    """If given, which settings `consort tune` tries."""
    scales: dict[str, Table] = field(default_factory=dict)
    """Named changes to this recipe, such as `desk` and `paper`."""

    def __post_init__(self) -> None:
        for name, kind in _NESTED.items():
            if isinstance(getattr(self, name), Mapping):  # written in Python as in a file
                object.__setattr__(self, name, checked(kind, getattr(self, name), name))
        groups = [checked(Group, g, "groups") if isinstance(g, Mapping) else g for g in self.groups]
        object.__setattr__(self, "groups", groups)
        if (self.clients is None) == (not self.groups):
            raise UsageError("a recipe needs either `clients = 10` or [[groups]], and not both")
        if not self.algorithms:
            raise UsageError("a recipe needs at least one algorithm, such as [algorithms.fedavg]")
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise UsageError(f"seeds = {self.seeds}: give at least one, and each only once")
        if self.sweep:
            self.sweep.check(self.algorithms, self.seeds)
        for table in self.published:
            for name in table.values:
                if name not in self.algorithms:
                    where = f"published numbers ({table.source})"
                    raise UsageError(f"{where}: no algorithm {did_you_mean(name, self.algorithms)}")
        for name, count in Counter(group.name for group in self.groups).items():
            if count > 1:
                raise UsageError(f"two groups are named {name!r}: give each a name of its own")
        if self.unseen and self.verification is None:
            raise UsageError("[unseen] says who is verified in the end: add [verification]")
        for name in self.protection.keys() & {*_OWN_KEYS}:
            raise UsageError(f"protection.{name}: write it as [{name}]")
        if "verification" in self.evaluations:
            raise UsageError("evaluations.verification: write it as [verification]")

    @property
    def table(self) -> Table:
        """The recipe as plain values with all defaults, as it is saved and sent."""
        written: Table = json.loads(adapter(Recipe).dump_json(self))
        for name, evaluation in self.examinations.items():
            options = json.loads(to_json(evaluation))
            if name == "verification":
                written |= options
            else:
                written["evaluations"][name] = options
        return written

    @property
    def examinations(self) -> dict[str, Evaluation]:
        """The evaluations besides the metrics of tasks, by name, with checked options."""
        found: dict[str, Evaluation] = {}
        if self.verification is not None:
            tables = {"verification": self.verification, "unseen": self.unseen}
            found["verification"] = checked(find("evaluations", "verification"), tables, "")
        for name, table in self.evaluations.items():
            found[name] = checked(find("evaluations", name), table, f"evaluations.{name}")
        return found

    @property
    def all_groups(self) -> list[Group]:
        """The groups, with what they take from the top level filled in."""
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
                local=group.local,
            )
            for group in groups
        ]

    def models_of(self, group: Group) -> list[ModelSpec]:
        """The checked models of a group, which its clients take in turn.

        Args:
            group: The group.

        Raises:
            UsageError: If a table is wrong.
        """
        tables = group.model if isinstance(group.model, list) else [group.model or {}]
        return [ModelSpec.of(table) for table in tables or [{}]]

    def obfuscations_of(self, group: Group) -> list[Obfuscation | None]:
        """The checked obfuscations of a group, which its clients take in turn.

        Args:
            group: The group.

        Returns:
            The obfuscations; None where images are not obfuscated.

        Raises:
            UsageError: If a table is wrong.
        """
        if not isinstance(group.obfuscation, list):
            return [None if group.obfuscation is None else _obfuscation(group.obfuscation)]
        return [_obfuscation(table) for table in group.obfuscation] or [None]

    def local_of(self, group: Group) -> Table:
        """The checked changes to the local training of a group.

        Args:
            group: The group.

        Raises:
            UsageError: If a key or value is wrong.
        """
        training = checked(LocalTraining, group.local, f"groups.{group.name}.local")
        return {key: getattr(training, key) for key in group.local}

    def algorithm(self, name: str) -> Algorithm[Any]:
        """One of the recipe's algorithms with its checked options.

        Args:
            name: The name of the algorithm in the recipe.

        Raises:
            UsageError: If there is no such algorithm, or an option is wrong.
        """
        if name not in self.algorithms:
            raise UsageError(f"the recipe has no algorithm {did_you_mean(name, self.algorithms)}")
        around = {*_OWN_KEYS, *_PARTICIPATION, "protection"}
        options = {k: v for k, v in self.algorithms[name].items() if k not in around}
        kind: Any = find_algorithm(str(options.pop("kind", name)))
        if "server_optimizer" in options:
            kind = with_server_optimizer(kind)
        own = options.get("local", {})
        options["local"] = self.local | own if isinstance(own, dict) else own
        algorithm: Algorithm[Any] = checked(kind, options, f"algorithms.{name}")
        return algorithm

    def schedule(self, name: str) -> Schedule:
        """The rounds of one of the recipe's algorithms, with its own participation and selection.

        Args:
            name: The name of the algorithm in the recipe.

        Raises:
            UsageError: If an option is wrong.
        """
        table = self.algorithms[name]
        own = {key: table[key] for key in _PARTICIPATION if key in table}
        checked(Schedule, own, f"algorithms.{name}")
        return replace(self.run, **own)

    def protections(self, name: str) -> tuple[Protection, ...]:
        """The protections of one of the recipe's algorithms, for `Federation.protected`.

        A protection is used if the recipe or the algorithm has its table, even an empty one.
        Those of plug-ins come last: on clients they are wrapped around the others.

        Args:
            name: The name of the algorithm in the recipe.

        Raises:
            UsageError: If an option is wrong.
        """
        found = []
        tables = {key: getattr(self, key) for key in _OWN_KEYS} | self.protection
        changes = self.algorithms[name]
        changes = {k: changes[k] for k in _OWN_KEYS if k in changes} | changes.get("protection", {})
        for key in tables | changes:
            common, own = tables.get(key), changes.get(key)
            if own is None and (common is None or common is False):
                continue
            table = merged(common if isinstance(common, dict) else {}, own or {})
            where = key if key in _OWN_KEYS else f"protection.{key}"
            found.append(checked(find("protections", key), table, where))
        return tuple(found)


def _obfuscation(table: Table) -> Obfuscation:
    """The obfuscation that a table describes; FP-DFSN if it has no name."""
    options = dict(table)
    kind = find("obfuscations", str(options.pop("name", "fp_dfsn")))
    found: Obfuscation = checked(kind, options, "obfuscation")
    return found


_NESTED: dict[str, type] = {
    "partition": Cut,
    "run": Schedule,
    "compute": Compute,
    "sweep": Sweep,
    "server": ServerSide,
}
_PARTICIPATION = ("participation", "selection")
"""Keys of `run` that an algorithm can have of its own."""
_OWN_KEYS = ("refuse_imprints", "privacy", "secure", "robust", "attack")
"""Protections with a key of their own in recipes. The order matters: see `protections`."""
