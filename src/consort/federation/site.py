"""What a client keeps to itself, whatever a server asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Generator

from consort.core.messages import Payload, State
from consort.core.randomness import Randomness, Seeded

USES = "uses of training data"
"""The entry of a simulated client's state with all uses so far; evaluations add to it as well."""
ONCE = "one-time secrets"
"""The entry of a simulated client's state with secrets that are used once."""


@dataclass(frozen=True)
class Use:
    """Equal uses of training data whose results leave the client, each hidden by noise."""

    unit: str
    """What the noise hides: a whole `client`, or a single `example`."""
    noise: float
    """The standard deviation of the noise, in units of what one unit can change."""
    share: float
    """The probability with which each unit takes part in a use."""
    count: int
    """The number of uses."""


class Site:
    """What a client keeps to itself. This one is simulated: all clients are on one machine.

    Randomness comes from the seed of the run, and everything is kept in the clients' states, so
    that a run can be repeated and resumed with the same numbers on every engine. A client on a
    machine of its own has another site: see `consort.deployment.site`.
    """

    limited = False
    """Whether there is a limit on what may be charged."""
    fewest = 2
    """The fewest clients, itself included, among whom it hides an answer."""

    def randomness(self, generator: Generator) -> Randomness:
        """The source of random numbers that nobody else may know.

        Args:
            generator: The generator of the call.
        """
        return Seeded(generator)

    def afford(self, use: Use) -> None:
        """Checks that there is room for a use, before the work for it is done.

        Args:
            use: The use that is going to be charged.

        Raises:
            Refused: If it is above the limit.
        """

    def charge(self, state: State, use: Use) -> None:
        """Records a use; it must be called before the result leaves the client.

        Args:
            state: The client's state.
            use: The use.

        Raises:
            Refused: If it is above the limit.
        """
        state[USES] = added(state.get(USES, ()), use)

    def charged(self, state: State) -> list[Use]:
        """All uses of this run so far.

        Args:
            state: The client's state.
        """
        return [Use(*entry) for entry in state.get(USES, ())]

    def secrets(self, state: State) -> State:
        """The secrets that `keep` stored last; empty if there are none.

        Args:
            state: The client's state.
        """
        return dict(state.get(ONCE, {}))

    def keep(self, state: State, secrets: State) -> None:
        """Replaces the secrets, before an answer that was made with the old ones leaves the client.

        Args:
            state: The client's state.
            secrets: The new secrets; none if it is empty.
        """
        state.pop(ONCE, None)
        if secrets:
            state[ONCE] = secrets

    def vouch(self, statement: bytes) -> bytes:  # noqa: ARG002
        """Makes a proof that this client says something; empty in a simulation.

        Args:
            statement: What it says.
        """
        return b""

    def verify(self, client: str, statement: bytes, proof: bytes) -> None:
        """Checks a proof that another client says something.

        Args:
            client: The other client.
            statement: What it says.
            proof: What `vouch` returned there.

        Raises:
            Refused: If the proof is not valid.
        """

    def disclosed(self, content: Payload) -> Payload:
        """What may be sent of the result of a method; protections see nothing else.

        Args:
            content: The result.
        """
        return content


def added(entries: Sequence[Sequence[Any]], use: Use) -> list[list[Any]]:
    """Adds a use to a list of uses as plain values.

    Args:
        entries: The uses so far: unit, noise, share and count of each.
        use: The use to add; equal ones are counted together.

    Returns:
        The new list, sorted.
    """
    counts = {tuple(kind): count for *kind, count in entries}
    kind = (use.unit, use.noise, use.share)
    counts[kind] = counts.get(kind, 0) + use.count
    return [[*kind, count] for kind, count in sorted(counts.items())]
