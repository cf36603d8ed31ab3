"""A federation that lives elsewhere: the server knows what its clients told it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from consort.core.algorithm import Algorithm
from consort.core.params import Params
from consort.data.examples import Splits
from consort.errors import Failure, UsageError
from consort.federation.federation import Federation
from consort.federation.member import Member
from consort.federation.protection import Protection
from consort.models.registry import ModelSpec
from consort.training.compute import Compute

Description = Mapping[str, Any]
Ask = Callable[[str, Mapping[str, Any] | None, int], Params]
"""Asks a client for the weights it starts with: (client, companion, number of the draw)."""


@dataclass(frozen=True, eq=False)
class Announced(Federation):
    """Its models are built by the clients; the server holds weights only."""

    told: Mapping[str, Description] = field(default_factory=dict)
    """What every client said about itself."""
    ask: Ask | None = None
    companion: Mapping[str, Any] | None = None
    _initial: dict[Any, Params] = field(default_factory=dict, init=False, repr=False)
    _shapes: dict[Any, Mapping[str, tuple[int, ...]]] = field(
        default_factory=dict, init=False, repr=False
    )

    @classmethod
    def of(
        cls,
        told: Mapping[str, Description],
        ask: Ask,
        seed: int = 0,
        compute: Compute = Compute(),
    ) -> Announced:
        """The federation of clients that said this about themselves."""
        members = {name: _member(about) for name, about in told.items()}
        return cls(members, seed, compute=compute, told=told, ask=ask)

    def check_clients(self, protection: Protection, algorithm: Algorithm[Any]) -> None:
        """Each client checks for itself when it joins: models and data are with them."""

    def initial(self, client: str) -> Params:
        """The weights this client's model starts with, asked for once per architecture."""
        key = self.members[client].architecture
        if key not in self._initial:
            self._initial[key] = self._asked(client, 0)
            self._shapes[key] = self._initial[key].shapes
        return self._initial[key]

    def shapes(self, client: str) -> Mapping[str, tuple[int, ...]]:
        """The shape of every parameter of this client's model."""
        self.initial(client)
        return self._shapes[self.members[client].architecture]

    def accompanied(self, table: Mapping[str, Any]) -> Announced:
        """The same clients, each with a companion beside its model."""
        chosen = self.chosen_companion(table)
        if chosen == self.companion:
            return self
        return replace(self, companion=chosen)

    def chosen_companion(self, table: Mapping[str, Any]) -> Mapping[str, Any]:
        """The companion that a table means: an empty one stands for the smallest model."""
        if table:
            return table
        first = min(self.client_ids, key=lambda client: self.told[client]["parameters"])
        smallest: Mapping[str, Any] = self.told[first]["model"]
        return smallest

    def pooled(self) -> Federation:
        """Data never leave their owners, so there is no pool."""
        raise UsageError("an algorithm that pools the data cannot run among institutions")

    def _draw(self, client: str, number: int) -> Params:
        return self._asked(client, number)

    def _asked(self, client: str, number: int) -> Params:
        if self.ask is None:
            raise Failure("there is nobody to ask for the initial weights")
        return self.ask(client, self.companion, number)


def _member(about: Description) -> Member:
    """Two clients are of one architecture if they start with the same weights."""
    tasks: Any = dict.fromkeys(about["tasks"])
    model = ModelSpec(about["model"]["name"], (("initial", about["initial"]),))
    return Member(tasks, model, torch.empty(0), _elsewhere)


def _elsewhere() -> Splits:
    raise Failure("the data are with the client")
