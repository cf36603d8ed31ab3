"""A client that takes part in a study: what it was asked, and what it has and tells."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from consort.core.algorithm import Algorithm
from consort.core.bounds import is_local_file
from consort.core.params import ADAPTER, Params, has_role, slots
from consort.core.permission import texts_in
from consort.core.validation import Table, checked
from consort.core.wire import encode
from consort.deployment.study import CLIENT_KEYS, Study
from consort.engines.middleware import bytes_by_role
from consort.errors import Refused
from consort.experiment.allocation import Seat, seats_of
from consort.experiment.assembly import assemble
from consort.experiment.loading import recipe_of
from consort.experiment.recipe import Group, Recipe
from consort.federation.federation import Federation
from consort.models.factories import find_model
from consort.models.registry import ModelSpec, build

ENCODER = "encoder"
"""The part of a model that adapters belong to."""


@dataclass(frozen=True)
class Candidate:
    """A study that a client may take part in, before anything is computed."""

    study: Study
    name: str
    """The name of the client."""
    data: Path | None
    """The folder with the client's data."""
    recipe: Recipe
    """The study's settings with the client's own."""

    @classmethod
    def of(cls, study: Study, name: str, brings: Table, data: Path | None) -> Candidate:
        """Checks a study together with what the client brings.

        Args:
            study: The study.
            name: The name of the client.
            brings: The client's data, model and tasks, as in a group of a recipe.
            data: The folder with the client's data.

        Raises:
            Refused: If the study decides what clients decide, or cannot run between institutions.
            UsageError: If the study and what the client brings do not fit together.
        """
        own = {"name": name, "count": 1} | brings
        checked(Group, own, "")
        settings = {key: value for key, value in study.recipe.items() if value is not None}
        for key in settings.keys() & {*CLIENT_KEYS}:
            raise Refused(f"{key} of a recipe are for each client to decide")
        recipe = recipe_of(settings | {"groups": [own]}, "the server's recipe")
        if list(recipe.algorithms) != [study.algorithm]:
            raise Refused("a study has one algorithm")
        if recipe.algorithm(study.algorithm).pools_data:
            raise Refused("an algorithm that pools the data cannot run between institutions")
        return cls(study, name, data, recipe)

    @cached_property
    def algorithm(self) -> Algorithm[Any]:
        """The algorithm of the study."""
        return self.recipe.algorithm(self.study.algorithm)

    @cached_property
    def sizes(self) -> dict[str, int]:
        """The bytes of the client's model by role; its companion, too, if the recipe names one."""
        sizes, companion = self.sizes_of(self._seat.model), self.algorithm.companion
        if companion:
            sizes["companion"] = sum(self.sizes_of(ModelSpec.of(companion)).values())
        return sizes

    @cached_property
    def _seat(self) -> Seat:
        (seat,) = seats_of(self.recipe, self.study.seed, self.data).values()
        return seat

    def sizes_of(self, model: ModelSpec) -> dict[str, int]:
        """The bytes of a model by role, found without building it in memory.

        A network of one's own is tried on an example, and so has to be built.

        Args:
            model: A model for the client's tasks and inputs.

        Returns:
            The bytes by role; nothing if the model cannot be built without memory.
        """
        make, seat = find_model(model.name), self._seat
        options = ((k, "" if is_local_file(make, k) else value) for k, value in model.options)
        bare = model if model.is_own else replace(model, options=tuple(options))
        try:
            with nullcontext() if model.is_own else torch.device("meta"):
                built = build(bare, seat.tasks, seat.dataset.example, 0, self.recipe.batchnorm)
        except RuntimeError:
            return {}
        return bytes_by_role(slots(built).items())

    @property
    def leaving(self) -> dict[str, int]:
        """Of these, what may leave the client: all but the private roles of the algorithm."""
        private = self.algorithm.private
        return {
            role: size
            for role, size in self.sizes.items()
            if not any(has_role(ENCODER if role == ADAPTER else role, kept) for kept in private)
        }


@dataclass(frozen=True)
class Enrolment:
    """A client that takes part in a study: a federation of one member, and the algorithm."""

    study: Study
    name: str
    federation: Federation
    algorithm: Algorithm[Any]
    recipe: Recipe

    @classmethod
    def of(cls, candidate: Candidate) -> Enrolment:
        """Loads a client's data and builds its model, as the study prescribes.

        Args:
            candidate: The study, and what the client brings.

        Raises:
            UsageError: If the study and what the client brings do not fit together.
        """
        study, recipe, name = candidate.study, candidate.recipe, candidate.name
        made = assemble(recipe, study.seed, candidate.data).federation
        (member,) = made.members.values()
        alone = replace(made, members={name: member}, client_ids=(), evaluation_ids=())
        algorithm = candidate.algorithm
        federation = alone.protected(*recipe.protections(study.algorithm))
        for protection in federation.protections:
            protection.check_client(federation, name, algorithm)
        return cls(study, name, federation, algorithm, recipe)

    def accompanied(self, companion: Table | None) -> Enrolment:
        """The same with the companion model that the server has chosen for all clients."""
        if companion is None:
            return self
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
            "model": _public(member.model),
            "tasks": {
                task: {"metric": kind.metric, "higher_is_better": kind.higher_is_better}
                for task, kind in member.tasks.items()
            },
            "parameters": initial.size,
            "initial": weights_digest(initial),
            "train": len(data.train),
            "validation": len(data.validation),
            "test": len(data.test),
            **({"measured": measured} if measured else {}),
            **({"local": _without_places(member.local)} if member.local else {}),
        }


def weights_digest(params: Params) -> str:
    """A hash of the names and values of parameters."""
    return hashlib.blake2b(encode(params), digest_size=16).hexdigest()


def _public(model: ModelSpec) -> Table:
    """A model without the files and folders of this machine.

    Texts among the options of a model of one's own may be files as well.
    """
    make = find_model(model.name)
    options = {
        key: value
        for key, value in model.options
        if not is_local_file(make, key) and not (model.is_own and [*texts_in(value)])
    }
    return _without_places({"name": Path(model.name).name} | options)


def _without_places(table: Mapping[str, Any]) -> Table:
    """A table in which code (`file.py:Class`) has its name only."""
    return {
        key: value.rpartition(":")[2] if isinstance(value, str) else value
        for key, value in table.items()
    }
