"""A federation that lives elsewhere: the server knows what its clients told it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from consort.core.params import Params
from consort.data.examples import Splits
from consort.errors import Failure, UsageError
from consort.federation.federation import Federation
from consort.federation.member import Member
from consort.models.registry import ModelSpec
from consort.training.compute import Compute

Description = Mapping[str, Any]
Ask = Callable[[str, Mapping[str, Any] | None, int], Params]
"""Asks a client for the weights it starts with: (client, companion, number of the draw)."""


class Announced(Federation):
    """Its models are built by the clients; the server holds weights only."""

    def __init__(
        self,
        told: Mapping[str, Description],
        ask: Ask,
        seed: int = 0,
        compute: Compute = Compute(),
        companion: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(
            {name: _member(about) for name, about in told.items()}, seed, compute=compute
        )
        self.told = told
        self.companion = companion
        self._ask = ask
        self._initial: dict[Any, Params] = {}
        self._shapes: dict[Any, Mapping[str, tuple[int, ...]]] = {}

    def initial(self, client: str) -> Params:
        """The weights this client's model starts with, asked for once per architecture."""
        key = self.members[client].architecture
        if key not in self._initial:
            self._initial[key] = self._ask(client, self.companion, 0)
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
        return Announced(self.told, self._ask, self.seed, self.compute, chosen)

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
        return self._ask(client, self.companion, number)


def _member(about: Description) -> Member:
    """Two clients are of one architecture if they start with the same weights."""
    tasks: Any = dict.fromkeys(about["tasks"])
    model = ModelSpec(about["model"]["name"], (("initial", about["initial"]),))
    return Member(tasks, model, torch.empty(0), _elsewhere)


def _elsewhere() -> Splits:
    raise Failure("the data are with the client")
