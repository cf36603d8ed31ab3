"""What the server knows about its clients before the first round."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from consort.core.params import Params
from consort.errors import UsageError


@dataclass(frozen=True)
class Roster:
    """Who takes part: for every client its tasks and the initial weights of its model.

    Clients of one architecture share one entry in `initial`, so a roster of ten thousand
    clients holds one model.
    """

    architectures: Mapping[str, Hashable]
    initial: Mapping[Hashable, Params]
    tasks: Mapping[str, tuple[str, ...]]
    draw: Callable[[str, int], Params]
    """Other initial weights of a client's model: one draw for every number."""
    accompanied: Callable[[Mapping[str, Any]], Roster]
    """The same clients with a companion beside their models: see `Algorithm.companion`."""

    @property
    def ids(self) -> tuple[str, ...]:
        """All clients, in order."""
        return tuple(self.architectures)

    def model(self, client: str) -> Params:
        """The weights this client's model starts with."""
        return self.initial[self.architectures[client]]

    def shared(self, *roles: str) -> Params:
        """The initial weights that all clients have in common (of some roles, or of all).

        Raises a clear error where two clients' models differ in them.
        """
        first, *others = self._representatives()
        common = self._part(first, roles)
        for other in others:
            theirs = self._part(other, roles)
            if theirs.shapes != common.shapes:
                raise UsageError(self._difference(first, other, common, theirs, roles))
        return common

    def starts(self, count: int) -> list[Params]:
        """Different initial weights of a model that all clients share, the usual ones first."""
        common = self.shared()
        return [common, *(self.draw(self.ids[0], number) for number in range(1, count))]

    def alike(self) -> dict[str, str]:
        """For every client the first that has the same tasks and the same model."""
        first: dict[Hashable, str] = {}
        return {client: first.setdefault(key, client) for client, key in self.architectures.items()}

    def _representatives(self) -> list[str]:
        """One client of every architecture."""
        return list(dict.fromkeys(self.alike().values()))

    def _part(self, client: str, roles: tuple[str, ...]) -> Params:
        return self.model(client).only(*roles) if roles else self.model(client)

    def _difference(
        self, first: str, other: str, mine: Params, theirs: Params, roles: tuple[str, ...]
    ) -> str:
        odd = sorted(
            name
            for name in mine.shapes.keys() | theirs.shapes.keys()
            if mine.shapes.get(name) != theirs.shapes.get(name)
        )[0]
        part = " and ".join(roles) or "whole model"
        return (
            f"this algorithm needs one {part} for all, but clients {first} and {other} differ in "
            f"{odd!r}: give all clients one architecture and the same tasks, or choose an "
            "algorithm that shares less (such as fedper or local_only)"
        )
