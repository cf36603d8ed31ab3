"""A federation whose clients are on other machines: the server knows only their descriptions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch

from consort.core.algorithm import Algorithm
from consort.core.known import Form, Known
from consort.core.limits import MOST_EXAMPLES
from consort.core.messages import Payload
from consort.core.params import Params
from consort.core.wire import check
from consort.data.examples import Splits
from consort.deployment.enrolment import weights_digest
from consort.deployment.schema import read_description
from consort.engines.middleware import RefusedReply
from consort.errors import ClientFailed, Failure, Refused, UsageError
from consort.federation.federation import Federation
from consort.federation.member import Member
from consort.federation.protection import Protection
from consort.models.registry import ModelSpec
from consort.training.compute import Compute

Description = Mapping[str, Any]
Ask = Callable[[str, Mapping[str, Any] | None, int], Params]
"""Asks a client for its initial weights: (client, companion, number of the draw)."""


@dataclass(frozen=True, eq=False)
class RemoteFederation(Federation):
    """A federation whose clients build the models; the server holds weights only."""

    holds_data: ClassVar[bool] = False

    descriptions: Mapping[str, Description] = field(default_factory=dict)
    """What each client told about itself."""
    ask: Ask | None = None
    companion: Mapping[str, Any] | None = None
    """The companion model of every client, if there is one."""
    _initial: dict[Any, Params] = field(default_factory=dict, init=False, repr=False)
    _forms: dict[Any, Form] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(
        cls,
        descriptions: Mapping[str, Description],
        ask: Ask,
        seed: int = 0,
        compute: Compute = Compute(),
    ) -> RemoteFederation:
        """The federation of the clients with these descriptions.

        Args:
            descriptions: What each client told about itself.
            ask: Asks a client for its initial weights.
            seed: The seed of the run.
            compute: How tensors are computed.
        """
        members = {name: _member(about) for name, about in descriptions.items()}
        return cls(members, seed, compute=compute, descriptions=descriptions, ask=ask)

    def check_clients(self, protection: Protection, algorithm: Algorithm[Any]) -> None:
        """Does nothing: each client checks when it joins, since it has the model and the data."""

    def initial(self, client: str) -> Params:
        """The initial weights of a client's model, requested once per architecture."""
        key = self.members[client].architecture
        if key not in self._initial:
            self._initial[key] = self._asked(client, 0)
            self._forms[key] = Form(self._initial[key])
        return self._initial[key]

    def shapes(self, client: str) -> Mapping[str, tuple[int, ...]]:
        """The shape of every parameter of a client's model."""
        return self._form(client).shapes

    def known(self, client: str) -> Known:
        """What a client told about itself, as far as its answers must match it."""
        about = self.descriptions[client]
        announced = about["train"]
        return Known(
            self._form(client),
            tuple(about["tasks"]),
            lambda: min(announced, MOST_EXAMPLES),
            tuple(about.get("measured", ())),
        )

    def _form(self, client: str) -> Form:
        self.initial(client)
        return self._forms[self.members[client].architecture]

    def accompanied(self, table: Mapping[str, Any]) -> RemoteFederation:
        """The same clients, each with a companion model beside its own.

        Args:
            table: The companion; an empty table stands for the smallest model of any client.
        """
        chosen = self.chosen_companion(table)
        if chosen == self.companion:
            return self
        return replace(self, companion=chosen)

    def chosen_companion(self, table: Mapping[str, Any]) -> Mapping[str, Any]:
        """The companion that a table describes; an empty one stands for the smallest model."""
        if table:
            return table
        first = min(self.client_ids, key=lambda client: self.descriptions[client]["parameters"])
        smallest: Mapping[str, Any] = self.descriptions[first]["model"]
        return smallest

    def pooled(self) -> Federation:
        """Not possible, since data never leave their owners.

        Raises:
            UsageError: Always.
        """
        raise UsageError("an algorithm that pools the data cannot run between institutions")

    def _draw(self, client: str, number: int) -> Params:
        return self._asked(client, number)

    def _asked(self, client: str, number: int) -> Params:
        if self.ask is None:
            raise Failure("no client can be asked for the initial weights")
        return self.ask(client, self.companion, number)


def _member(about: Description) -> Member:
    """A placeholder; clients have the same architecture if their initial weights are equal."""
    tasks: Any = dict.fromkeys(about["tasks"])
    model = ModelSpec(about["model"]["name"], (("initial", about["initial"]),))
    return Member(tasks, model, torch.empty(0), _elsewhere)


def _elsewhere() -> Splits:
    raise Failure("the data stay with the client")


def described(client: str, answer: Payload | ClientFailed) -> dict[str, Any]:
    """The description of a client.

    Args:
        client: The name of the client.
        answer: What it answered.

    Raises:
        ClientFailed: If it answered something else.
    """
    if isinstance(answer, ClientFailed):
        raise answer
    try:
        return read_description(answer)
    except Refused as error:
        raise RefusedReply(client, str(error)) from error


def initial_weights(
    client: str,
    answer: Payload | ClientFailed,
    about: Description,
    companion: Mapping[str, Any] | None,
    number: int,
) -> Params:
    """The initial weights that a client sent, which must be those that it announced.

    Args:
        client: The name of the client.
        answer: What it answered.
        about: The description of the client.
        companion: The companion model, whose weights are not announced.
        number: Which draw; only the first is announced.

    Raises:
        ClientFailed: If it answered something else.
    """
    if isinstance(answer, ClientFailed):
        raise answer
    weights = answer.get("model")
    try:
        if not isinstance(weights, Params) or len(answer) > 1:
            raise Refused("sent something else than initial weights")
        check(list(weights.items()), weights.shapes)
        own = weights if companion is None else weights.without("companion")
        single = all(tensor.dtype == torch.float32 for tensor in weights.values())
        if own.size != about["parameters"] or not single:
            raise Refused("sent initial weights of another number or type than it announced")
        if number == 0 and weights_digest(own) != about["initial"]:
            raise Refused("sent other initial weights than it announced")
    except Refused as error:
        raise RefusedReply(client, str(error)) from error
    return weights
