"""What the server knows about its clients before the first round."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from consort.core.params import Params
from consort.errors import UsageError


@dataclass(frozen=True)
class Roster:
    """The clients, with their tasks and the initial weights of their models.

    Clients with the same architecture share one entry of `initial`, so the roster of ten thousand
    such clients holds one model.

    Examples:
        >>> import torch
        >>> from consort import Classification, Examples, Federation, Member, ModelSpec, Splits
        >>> examples = Examples(torch.zeros(2, 4), {"sign": torch.tensor([0, 1])})
        >>> splits = Splits(examples, examples, examples)
        >>> spec = ModelSpec.of({"name": "mlp", "hidden": [3]})
        >>> member = Member.of({"sign": Classification(2)}, spec, splits)
        >>> roster = Federation({"bank-1": member, "bank-2": member}).roster
        >>> roster.ids, roster.tasks["bank-1"]
        (('bank-1', 'bank-2'), ('sign',))
        >>> roster.shared("heads")
        Params(2 tensors, 8 numbers)
    """

    architectures: Mapping[str, Hashable]
    """A key for the architecture of each client's model."""
    initial: Mapping[Hashable, Params]
    """The initial weights of each architecture."""
    tasks: Mapping[str, tuple[str, ...]]
    """The names of each client's tasks."""
    draw: Callable[[str, int], Params]
    """Other initial weights of a client's model, for a client and the number of the draw."""
    accompanied: Callable[[Mapping[str, Any]], Roster]
    """The same clients with a companion model, given its table: see `Algorithm.companion`."""
    server_data: bool = False
    """Whether the server has examples of its own: see `Clients.server_side`."""

    @property
    def ids(self) -> tuple[str, ...]:
        """The names of all clients, in order."""
        return tuple(self.architectures)

    def model(self, client: str) -> Params:
        """The initial weights of a client's model.

        Args:
            client: The name of the client.
        """
        return self.initial[self.architectures[client]]

    def shared(self, *roles: str) -> Params:
        """The initial weights that the models of all clients have in common.

        Args:
            *roles: The parts of the model that must be common; the whole model if none is given.

        Raises:
            UsageError: If the models of two clients differ in these parts.
        """
        first, *others = self._representatives()
        common = self._part(first, roles)
        for other in others:
            theirs = self._part(other, roles)
            if theirs.shapes != common.shapes:
                raise UsageError(self._difference(first, other, common, theirs, roles))
        return common

    def starts(self, count: int) -> list[Params]:
        """Several sets of initial weights for a model that all clients share.

        Args:
            count: The number of sets.

        Returns:
            The usual initial weights, followed by other random draws.

        Raises:
            UsageError: If the models of two clients differ.
        """
        common = self.shared()
        return [common, *(self.draw(self.ids[0], number) for number in range(1, count))]

    def alike(self) -> dict[str, str]:
        """For each client the first client with the same tasks and architecture."""
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
