"""Which clients take part in a round, and simulated failures."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from consort.core.randomness import derive, generator_for


def cohort(ids: Sequence[str], share: float, seed: int, round: int) -> tuple[str, ...]:
    """Draws the clients that take part in a round.

    Args:
        ids: The names of all clients, in order.
        share: The share of the clients that take part; at least one does.
        seed: The seed of the run.
        round: The round.

    Returns:
        The names of the drawn clients, in the order of `ids`.
    """
    count = cohort_size(len(ids), share)
    if count >= len(ids):
        return tuple(ids)
    drawn = torch.randperm(len(ids), generator=generator_for(seed, round, "cohort"))[:count]
    return tuple(ids[index] for index in sorted(drawn.tolist()))


def cohort_size(clients: int, share: float) -> int:
    """How many clients take part in a round: a share of the `clients`, but at least one."""
    return min(clients, max(1, round_half_up(share * clients)))


def round_half_up(value: float) -> int:
    """Rounds to the nearest whole number, and halves up: 2.5 clients are 3.

    Args:
        value: A number that is not negative.
    """
    return int(value + 0.5)


def happens(probability: float, seed: int, round: int, client: str, event: str) -> bool:
    """Draws whether an event happens to a client in a round.

    Args:
        probability: The probability of the event.
        seed: The seed of the run.
        round: The round.
        client: The name of the client.
        event: The name of the event.
    """
    return derive(seed, round, client, event) < probability * 2**56
