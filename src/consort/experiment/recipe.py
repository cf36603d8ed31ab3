"""An experiment as a TOML file: a federation, algorithms, seeds, and what papers say about it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pydantic_core import to_json
from torch import Tensor

from consort.algorithms.registry import find_algorithm
from consort.core.algorithm import Algorithm
from consort.core.bounds import Count
from consort.core.plugins import find
from consort.core.registry import did_you_mean, load_object
from consort.core.validation import Table, adapter, checked
from consort.data.partition import Cut
from consort.errors import UsageError
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
"""Called with prepared inputs and `seed`, makes inputs in which less can be recognised."""


@dataclass(frozen=True)
class Group:
    """Clients that are alike. What is left out is taken from the top of the recipe."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

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
    local: Table = field(default_factory=dict)
    """What is different about the clients' local training, whatever the algorithm."""


@dataclass(frozen=True)
class Recipe:
    """Everything that decides the numbers of an experiment."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

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
    robust: Table | None = None
    """What the server does against wrong updates, unless an algorithm's own `robust` differs."""
    privacy: Table | None = None
    """Noise on what clients send, unless an algorithm's own `privacy` differs."""
    secure: Table | None = None
    """If given, the server sees only means, unless an algorithm's own `secure` differs."""
    refuse_imprints: bool = False
    """Whether clients refuse models that are built to carry examples away."""
    attack: Table | None = None
    """What some clients do wrong on purpose, unless an algorithm's own `attack` differs."""
    verification: Table | None = None
    """If given, every evaluation verifies signatures with the features of what is scored."""
    unseen: dict[str, Table] = field(default_factory=dict)
    """By name: users that are verified in the last round, and that no client trains on."""
    evaluations: dict[str, Table] = field(default_factory=dict)
    """By name: the options of what plug-ins measure besides."""
    average_rounds: Count = 1
    """Over how many of the last rounds tables and claims take the values at the end."""
    seeds: list[int] = field(default_factory=lambda: [0])
    published: list[Published] = field(default_factory=list)
    claims: list[str] = field(default_factory=list)
    scales: dict[str, Table] = field(default_factory=dict)
    """Named changes to this recipe, such as `desk` and `paper`."""

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
        for name, count in Counter(group.name for group in self.groups).items():
            if count > 1:
                raise UsageError(f"two groups are named {name!r}: give each a name of its own")
        if self.unseen and self.verification is None:
            raise UsageError("[unseen] says who is verified in the end: add [verification]")
        if "verification" in self.evaluations:
            raise UsageError("evaluations.verification: write it as [verification]")

    @property
    def table(self) -> Table:
        """The recipe as it is written down and sent, with all defaults."""
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
        """By name: what is measured besides the metrics of tasks, with its checked options."""
        found: dict[str, Evaluation] = {}
        if self.verification is not None:
            tables = {"verification": self.verification, "unseen": self.unseen}
            found["verification"] = checked(find("evaluations", "verification"), tables, "")
        for name, table in self.evaluations.items():
            found[name] = checked(find("evaluations", name), table, f"evaluations.{name}")
        return found

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
                local=group.local,
            )
            for group in groups
        ]

    def models_of(self, group: Group) -> list[ModelSpec]:
        """The checked models of a group, to be taken in turns."""
        tables = group.model if isinstance(group.model, list) else [group.model or {}]
        return [ModelSpec.of(table) for table in tables or [{}]]

    def obfuscations_of(self, group: Group) -> list[Obfuscation | None]:
        """The checked obfuscations of a group, to be taken in turns; none, unless it has some."""
        if not isinstance(group.obfuscation, list):
            return [None if group.obfuscation is None else _obfuscation(group.obfuscation)]
        return [_obfuscation(table) for table in group.obfuscation] or [None]

    def local_of(self, group: Group) -> Table:
        """What is different about the local training of a group, checked."""
        training = checked(LocalTraining, group.local, f"groups.{group.name}.local")
        return {key: getattr(training, key) for key in group.local}

    def algorithm(self, name: str) -> Algorithm[Any]:
        """One of the recipe's algorithms with its checked options."""
        if name not in self.algorithms:
            raise UsageError(f"the recipe has no algorithm {did_you_mean(name, self.algorithms)}")
        options = {k: v for k, v in self.algorithms[name].items() if k not in PROTECTIONS}
        kind = find_algorithm(str(options.pop("kind", name)))
        own = options.get("local", {})
        options["local"] = self.local | own if isinstance(own, dict) else own
        algorithm: Algorithm[Any] = checked(kind, options, f"algorithms.{name}")
        return algorithm

    def protections(self, name: str) -> tuple[Protection, ...]:
        """What is done around one of the recipe's algorithms, as `Federation.protected` takes it.

        A protection is at work if the recipe or the algorithm has its table, even an empty one.
        """
        own = self.algorithms[name]
        found = []
        for key, place in PROTECTIONS.items():
            common = getattr(self, key)
            if key in own or not (common is None or common is False):
                table = merged(common if isinstance(common, dict) else {}, own.get(key, {}))
                found.append(checked(load_object(place), table, key))
        return tuple(found)


def _obfuscation(table: Table) -> Obfuscation:
    """What a table describes; without a name, FP-DFSN."""
    options = dict(table)
    kind = find("obfuscations", str(options.pop("name", "fp_dfsn")))
    found: Obfuscation = checked(kind, options, "obfuscation")
    return found


PROTECTIONS = {
    "refuse_imprints": "consort.protection.imprint:RefuseImprints",
    "privacy": "consort.protection.dp:Privacy",
    "secure": "consort.protection.secure.settings:Secure",
    "robust": "consort.protection.robust:Robust",
    "attack": "consort.attacks.poisoning:Attack",
}
"""The order matters: on clients, a later one is wrapped around those before it."""
