"""Who the clients are: the tasks, the model and the data of each."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch

from consort.core.params import Params
from consort.core.randomness import derive
from consort.core.registry import check_name
from consort.core.roster import Roster
from consort.data.examples import Examples, Splits
from consort.domains.signatures.verification import Verification
from consort.errors import UsageError
from consort.federation.blueprint import Blueprint
from consort.federation.member import Member
from consort.models.multitask import BatchNormPolicy, MultiTaskModel
from consort.models.registry import ModelSpec, build
from consort.protection.dp import Privacy
from consort.protection.secure.settings import Secure
from consort.training.compute import Compute

EVERYONE = "everyone"
_KEPT_BYTES = 2 << 30  # examples in memory; beyond that, those used longest ago are let go


class Federation:
    """The clients of a run. Models are built once per architecture, data are kept while used."""

    def __init__(
        self,
        members: Mapping[str, Member],
        seed: int = 0,
        batchnorm: BatchNormPolicy = "average",
        compute: Compute = Compute(),
        verification: Verification | None = None,
        privacy: Privacy | None = None,
    ) -> None:
        for name in members:
            check_name(name)
        if not members:
            raise UsageError("a federation needs at least one client")
        self.members = dict(sorted(members.items()))
        self.seed = seed
        self.batchnorm: BatchNormPolicy = batchnorm
        self.compute = compute
        self.verification = verification
        self.privacy = privacy
        self.secure: Secure | None = None
        self.refuses_imprints = False
        self.client_ids = tuple(self.members)
        self.evaluation_ids = self.client_ids
        self._architectures: dict[Hashable, Blueprint] = {}
        self._blueprints: dict[str, Blueprint] = {}
        self._accompanied: dict[ModelSpec, Federation] = {}
        self._data: OrderedDict[str, Splits] = OrderedDict()
        self._data_bytes = 0

    def blueprint(self, client: str) -> Blueprint:
        """The model of this client's architecture, which it shares with its like."""
        if client not in self._blueprints:
            member = self.members[client]
            key = member.architecture
            if key not in self._architectures:
                self._architectures[key] = Blueprint(self._build(member, self.seed))
            self._blueprints[client] = self._architectures[key]
        return self._blueprints[client]

    def initial(self, client: str) -> Params:
        """The weights this client's model starts with."""
        return self.blueprint(client).params

    def shapes(self, client: str) -> Mapping[str, tuple[int, ...]]:
        """The shape of every parameter of this client's model."""
        return self.blueprint(client).shapes

    def _draw(self, client: str, number: int) -> Params:
        return Params.of(self._build(self.members[client], derive(self.seed, "draw", number)))

    def _build(self, member: Member, seed: int) -> MultiTaskModel:
        kind = member.tasks, member.example
        model = build(member.model, *kind, seed, self.batchnorm)
        if member.companion:
            # Another seed, so that it is no twin where its architecture is the same.
            seed = derive(seed, "companion")
            model.companion = build(member.companion, *kind, seed, self.batchnorm)
        if self.compute.channels_last:
            model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return model

    def data(self, client: str) -> Splits:
        """This client's examples, from memory or brought there now."""
        if client not in self._data:
            splits = self.members[client].load()
            self._data[client] = Splits(*map(self._laid_out, _parts(splits)))
            self._data_bytes += _size(self._data[client])
            while self._data_bytes > _KEPT_BYTES and len(self._data) > 1:
                self._data_bytes -= _size(self._data.popitem(last=False)[1])
        self._data.move_to_end(client)
        return self._data[client]

    @cached_property
    def roster(self) -> Roster:
        """What the server knows of the clients."""
        architectures = {name: self.members[name].architecture for name in self.client_ids}
        representatives = {key: name for name, key in architectures.items()}
        return Roster(
            architectures,
            {key: self.initial(name) for key, name in representatives.items()},
            {name: tuple(self.members[name].tasks) for name in self.client_ids},
            self._draw,
            lambda table: self.accompanied(table).roster,
        )

    def accompanied(self, table: Mapping[str, Any]) -> Federation:
        """The same clients, each with a companion beside its model: see `Algorithm.companion`."""
        spec = ModelSpec.of(table) if table else self._smallest()
        if spec not in self._accompanied:
            members = {n: replace(member, companion=spec) for n, member in self.members.items()}
            others = self.having(members)
            others.client_ids, others.evaluation_ids = self.client_ids, self.evaluation_ids
            self._accompanied[spec] = others
        return self._accompanied[spec]

    def having(self, members: Mapping[str, Member]) -> Federation:
        """Other members under the same circumstances."""
        kept = self.seed, self.batchnorm, self.compute, self.verification, self.privacy
        others = Federation(members, *kept)
        others.refuses_imprints, others.secure = self.refuses_imprints, self.secure
        return others

    def protected(self, privacy: Privacy | None, secure: Secure | None = None) -> Federation:
        """The same clients, who add noise to what they send, hide it among each other, or none."""
        if (privacy, secure) == (self.privacy, self.secure):
            return self
        others = self.having(self.members)
        others.client_ids, others.evaluation_ids = self.client_ids, self.evaluation_ids
        others.privacy, others.secure = privacy, secure
        return others

    def _smallest(self) -> ModelSpec:
        """The model with the fewest numbers, the first of several such."""
        first = min(self.client_ids, key=lambda client: self.initial(client).size)
        return self.members[first].model

    def pooled(self) -> Federation:
        """One client with everybody's data trains; the real clients only evaluate."""
        unlike = {member.architecture: name for name, member in reversed(self.members.items())}
        if len(unlike) > 1:
            one, other = sorted(unlike.values())[:2]
            raise UsageError(
                "pooling the data needs one architecture and the same tasks for all, but clients "
                f"{one} and {other} differ"
            )
        if EVERYONE in self.members:
            raise UsageError(f"the name {EVERYONE!r} is needed for the pool: rename that client")
        first = next(iter(self.members.values()))
        everyone = replace(first, load=self._load_everything, local={})
        pool = self.having(self.members | {EVERYONE: everyone})
        pool.client_ids, pool.evaluation_ids = (EVERYONE,), self.client_ids
        return pool

    def _load_everything(self) -> Splits:
        columns = zip(*(_parts(member.load()) for member in self.members.values()), strict=True)
        return Splits(*map(Examples.concatenate, columns))

    def _laid_out(self, examples: Examples) -> Examples:
        if self.compute.channels_last and examples.inputs.ndim == 4:
            inputs = examples.inputs.contiguous(memory_format=torch.channels_last)
            return replace(examples, inputs=inputs)
        return examples


def _parts(splits: Splits) -> list[Examples]:
    parts = [splits.train, splits.validation, splits.test]
    return parts if splits.marked is None else [*parts, splits.marked]


def _size(splits: Splits) -> int:
    return sum(
        tensor.numel() * tensor.element_size()
        for part in _parts(splits)
        for tensor in (part.inputs, *part.targets.values())
    )
