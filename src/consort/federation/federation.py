"""The clients of a run: the tasks, the model and the data of each."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from consort.core.algorithm import Algorithm
from consort.core.asking import check_text
from consort.core.clients import NO_SERVER_DATA
from consort.core.inputs import Inputs, each, kind_of
from consort.core.known import Known
from consort.core.params import Params
from consort.core.randomness import derive, generator_for
from consort.core.registry import check_name
from consort.core.roster import Roster
from consort.data.examples import Examples, Splits
from consort.errors import UsageError
from consort.federation.blueprint import Blueprint
from consort.federation.cache import DataCache
from consort.federation.member import Member
from consort.federation.protection import Protection
from consort.models.multitask import BatchNormPolicy, MultiTaskModel
from consort.models.registry import ModelSpec, build
from consort.training.client import Client
from consort.training.compute import Compute
from consort.training.evaluation import EvaluationExtra

EVERYONE = "everyone"
"""The name of the client that is trained on the data of all clients: see `pooled`."""


@dataclass(frozen=True, eq=False)
class Federation:
    """The clients of a run.

    Models are built once per architecture, and data are kept in memory while there is room. A
    federation is not changed: `dataclasses.replace` makes another one, which builds and loads anew.

    Args:
        members: The clients by name.
        seed: The seed of the initial weights.
        batchnorm: What happens to the running statistics of BatchNorm: see `MultiTaskModel`.
        compute: Settings of the arithmetic.
        extras: What is measured besides the metrics of the tasks.
        protections: The protections, in order: see `protected`.
        client_ids: The clients that are trained; all if empty.
        evaluation_ids: The clients that are evaluated; those that are trained if empty.
        server_data: Examples that the server has, or a function that loads them, for algorithms
            that train on the server: see `Clients.server_side`.

    Raises:
        UsageError: If there is no client, or a name cannot be the name of a folder.

    Examples:
        >>> import torch
        >>> from consort import Classification, Examples, Federation, Member, ModelSpec, Splits
        >>> examples = Examples(torch.eye(4), {"place": torch.arange(4)})
        >>> splits = Splits(examples, examples, examples)
        >>> small, large = (ModelSpec.of({"name": "mlp", "hidden": [n]}) for n in (8, 16))
        >>> federation = Federation({
        ...     "bank-1": Member.of({"place": Classification(4)}, small, splits),
        ...     "bank-2": Member.of({"place": Classification(4)}, large, splits),
        ... })
        >>> federation.client_ids
        ('bank-1', 'bank-2')
        >>> federation.initial("bank-1").size, federation.initial("bank-2").size
        (76, 148)
    """

    holds_data: ClassVar[bool] = True
    """Whether the data of the clients are on this machine."""

    members: Mapping[str, Member]
    seed: int = 0
    batchnorm: BatchNormPolicy = "average"
    compute: Compute = Compute()
    extras: tuple[EvaluationExtra, ...] = ()
    protections: tuple[Protection, ...] = ()
    client_ids: tuple[str, ...] = ()
    evaluation_ids: tuple[str, ...] = ()
    server_data: Examples | Callable[[], Examples] | None = None
    _architectures: dict[Hashable, Blueprint] = field(default_factory=dict, init=False, repr=False)
    _blueprints: dict[str, Blueprint] = field(default_factory=dict, init=False, repr=False)
    _accompanied: dict[ModelSpec, Federation] = field(default_factory=dict, init=False, repr=False)
    _data: DataCache = field(default_factory=DataCache, init=False, repr=False)

    def __post_init__(self) -> None:
        for name in self.members:
            check_name(name)
        if not self.members:
            raise UsageError("a federation needs at least one client")
        members = dict(sorted(self.members.items()))
        ids = self.client_ids or tuple(members)
        for name, value in (
            ("members", members),
            ("client_ids", ids),
            ("evaluation_ids", self.evaluation_ids or ids),
        ):
            object.__setattr__(self, name, value)

    def blueprint(self, client: str) -> Blueprint:
        """The model that a client shares with all clients of its architecture.

        Args:
            client: The name of the client.
        """
        if client not in self._blueprints:
            member = self.members[client]
            key = member.architecture
            if key not in self._architectures:
                self._architectures[key] = Blueprint(self._build(client, self.seed))
            self._blueprints[client] = self._architectures[key]
        return self._blueprints[client]

    def initial(self, client: str) -> Params:
        """The initial weights of a client's model.

        Args:
            client: The name of the client.
        """
        return self.blueprint(client).params

    def shapes(self, client: str) -> Mapping[str, tuple[int, ...]]:
        """The shape of every parameter of a client's model.

        Args:
            client: The name of the client.
        """
        return self.blueprint(client).shapes

    def known(self, client: str) -> Known:
        """What a server knows about a client before it answers.

        Args:
            client: The name of the client.
        """
        model = self.blueprint(client)
        measured = tuple(task for extra in self.extras for task in extra.tasks)
        width = getattr(model.model.encoder, "width", None)
        tasks = tuple(self.members[client].tasks)
        return Known(model.form, tasks, lambda: self._examples(client), measured, width)

    def _examples(self, client: str) -> int:
        known = self.members[client].examples
        return len(self.data(client).train) if known is None else known

    def _draw(self, client: str, number: int) -> Params:
        seed = derive(self.seed, "draw", number)
        return Params.of(self._build(client, seed, redrawn=True))

    def _build(self, client: str, seed: int, redrawn: bool = False) -> MultiTaskModel:
        try:
            return self._built(self.members[client], seed, redrawn)
        except UsageError as error:
            raise UsageError(f"client {client}: {error}") from error

    def _built(self, member: Member, seed: int, redrawn: bool) -> MultiTaskModel:
        kind = member.tasks, member.example
        model = build(member.model, *kind, seed, self.batchnorm, redrawn)
        if member.companion:
            # Another seed, so that equal architectures do not start with equal weights.
            seed = derive(seed, "companion")
            model.companion = build(member.companion, *kind, seed, self.batchnorm, redrawn)
        if self.compute.channels_last and model.channels_last:
            model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return model

    def data(self, client: str) -> Splits:
        """The data of a client, from memory or loaded now.

        Args:
            client: The name of the client.
        """
        return self._data.get(client, lambda: self._load(client))

    def _load(self, client: str) -> Splits:
        return self.members[client].load().map(lambda part: self._laid_out(part, client))

    def _laid_out(self, examples: Examples, client: str) -> Examples:
        """Images with channels last, if a client's model takes them; a user's network may not."""
        own = self.members[client].model.is_own
        takes = not own or self.blueprint(client).model.channels_last
        return _channels_last(examples) if self.compute.channels_last and takes else examples

    @cached_property
    def roster(self) -> Roster:
        """What the server knows about the clients."""
        architectures = {name: self.members[name].architecture for name in self.client_ids}
        representatives = {key: name for name, key in architectures.items()}
        return Roster(
            architectures,
            {key: self.initial(name) for key, name in representatives.items()},
            {name: tuple(self.members[name].tasks) for name in self.client_ids},
            self._draw,
            lambda table: self.accompanied(table).roster,
            self.server_data is not None,
        )

    def server_side(self, like: str, seed: int, round: int, rounds: int) -> Client:
        """The server as a client of its own: see `Clients.server_side`.

        Args:
            like: The client whose architecture and tasks the server's model has.
            seed: The seed of the run.
            round: The round, counted from 1.
            rounds: The number of rounds.

        Raises:
            UsageError: If the server has no data, or they do not fit the client's model.
        """
        examples, member = self._laid_out(self._public, like), self.members[like]
        found, wanted = kind_of(examples.example), kind_of(member.example)
        if found != wanted:
            raise UsageError(
                f"server.data has inputs of shape {found}, but the model of client {like} takes "
                f"{wanted}: choose other data"
            )
        nothing = examples.take(torch.zeros(0, dtype=torch.int64))
        torch.default_generator.manual_seed(derive(seed, round, "server side"))  # for dropout
        return Client(
            id="server",
            model=self.blueprint(like).fresh(),
            tasks=dict(member.tasks),
            data=Splits(examples, nothing, nothing),
            state={},
            generator=generator_for(seed, round, "server"),
            round=round,
            rounds=rounds,
        )

    @property
    def server_inputs(self) -> Inputs:
        """The inputs of the server's examples.

        Raises:
            UsageError: If the server has no data.
        """
        return self._public.loaded

    @cached_property
    def _public(self) -> Examples:
        if self.server_data is None:
            raise UsageError(NO_SERVER_DATA)
        return self.server_data() if callable(self.server_data) else self.server_data

    def accompanied(self, table: Mapping[str, Any]) -> Federation:
        """The same clients, each with a companion beside its model: see `Algorithm.companion`.

        Args:
            table: The companion's table, as for `ModelSpec.of`; if empty, the smallest of the
                clients' models.

        Raises:
            UsageError: If the table is wrong.
        """
        spec = ModelSpec.of(table) if table else self._smallest()
        if spec not in self._accompanied:
            members = {n: replace(member, companion=spec) for n, member in self.members.items()}
            self._accompanied[spec] = replace(self, members=members)
        return self._accompanied[spec]

    def protected(self, *protections: Protection) -> Self:
        """The same clients with other protections.

        Args:
            *protections: The protections that replace the present ones. On clients, a later one is
                wrapped around those before it; on the server, a later one is closer to the
                algorithm.
        """
        if protections == self.protections:
            return self
        prepared = self
        for protection in protections:
            prepared = protection.prepared(prepared)
        return replace(prepared, protections=protections)

    def check(self, algorithm: Algorithm[Any], present: int) -> None:
        """Checks, before anything is trained, data at hand, the algorithm's text and protections.

        Args:
            algorithm: The algorithm that is to be run.
            present: The number of clients that take part in a round.

        Raises:
            UsageError: If the data of a client cannot be trained on, the algorithm has a mistake
                that can be seen, or a protection does not suit the algorithm or a client.
        """
        kind: Any = type(algorithm)
        check_text(kind)
        for name, member in self.members.items():
            try:
                member.check()
            except UsageError as error:
                raise UsageError(f"client {name}: {error}") from error
        for protection in self.protections:
            protection.check(self, algorithm, present)
            self.check_clients(protection, algorithm)

    def check_clients(self, protection: Protection, algorithm: Algorithm[Any]) -> None:
        """Checks that a protection can protect all clients.

        Args:
            protection: The protection.
            algorithm: The algorithm that is to be run.

        Raises:
            UsageError: If the protection does not suit a client.
        """
        for client in self.client_ids:
            protection.check_client(self, client, algorithm)

    def _smallest(self) -> ModelSpec:
        """The model with the fewest parameters; the first one, if there are several."""
        first = min(self.client_ids, key=lambda client: self.initial(client).size)
        return self.members[first].model

    def pooled(self) -> Federation:
        """The same federation with one client that is trained on the data of all clients.

        The real clients are only evaluated.

        Raises:
            UsageError: If the clients differ in architecture or tasks, or one has the name of the
                new client.
        """
        kinds: dict[Hashable, str] = {}
        for name, member in self.members.items():
            kinds.setdefault(member.architecture, name)
        if len(kinds) > 1:
            one, other = sorted(kinds.values())[:2]
            raise UsageError(
                "pooling the data needs one architecture and the same tasks for all, but clients "
                f"{one} and {other} differ"
            )
        if EVERYONE in self.members:
            raise UsageError(f"the name {EVERYONE!r} is needed for the pool: rename that client")
        first = next(iter(self.members.values()))
        everyone = replace(first, load=self._load_everything, local={}, examples=None)
        return replace(
            self,
            members={**self.members, EVERYONE: everyone},
            client_ids=(EVERYONE,),
            evaluation_ids=self.client_ids,
        )

    def _load_everything(self) -> Splits:
        return Splits.concatenate([member.load() for member in self.members.values()])


def _channels_last(examples: Examples) -> Examples:
    return examples.changed(lambda inputs: each(inputs, _with_channels_last))


def _with_channels_last(tensor: Tensor) -> Tensor:
    return tensor.contiguous(memory_format=torch.channels_last) if tensor.ndim == 4 else tensor
