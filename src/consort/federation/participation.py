"""Who takes part in a round, and who fails to, on purpose."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from consort.core.randomness import derive, generator_for


def cohort(ids: Sequence[str], share: float, seed: int, round: int) -> tuple[str, ...]:
    """A share of the clients, at least one, drawn anew each round; in client order."""
    count = max(1, round_half_up(share * len(ids)))
    if count >= len(ids):
        return tuple(ids)
    drawn = torch.randperm(len(ids), generator=generator_for(seed, round, "cohort"))[:count]
    return tuple(ids[index] for index in sorted(drawn.tolist()))


def round_half_up(value: float) -> int:
    """Plain rounding: 2.5 clients are 3, not 2."""
    return int(value + 0.5)


def happens(probability: float, seed: int, round: int, client: str, event: str) -> bool:
    """Whether an event with this probability befalls a client in a round."""
    return derive(seed, round, client, event) < probability * 2**56
