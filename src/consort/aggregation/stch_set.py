"""Smooth Tchebycheff set scalarisation: one objective for many clients and a few models.

Lin, Liu, Zhang, Liu, Wang and Zhang: Few for Many: Tchebycheff Set Scalarization for
Many-Objective Optimization, ICLR 2025. Row i of a table of losses is a client, column k a model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from consort.core.params import Params


class SetWeights(NamedTuple):
    """The weights of the clients and, for each client, of the models; both sum to 1."""

    clients: Tensor
    """The paper's alpha: it increases with the loss of the client's best model."""
    models: Tensor
    """The paper's w, one row per client: it decreases with the loss of the model."""

    @property
    def gradient(self) -> Tensor:
        """The derivative of the objective with respect to every loss; it sums to 1."""
        return self.clients[:, None] * self.models


def set_weights(losses: Tensor, mu: float) -> SetWeights:
    """The weights at a table of losses, computed in log space to avoid overflow.

    Args:
        losses: One row per client, one column per model.
        mu: The smoothing parameter.

    Returns:
        The weights.
    """
    fit = -losses.double() / mu
    return SetWeights((-fit.logsumexp(1)).softmax(0), fit.softmax(1))


def smooth_objective(losses: Tensor, mu: float) -> float:
    """g = mu log Σᵢ 1 / Σₖ exp(-Lᵢₖ / mu), for a table L of `losses` and smoothing `mu`."""
    best = (-losses.double() / mu).logsumexp(1)
    return mu * float((-best).logsumexp(0))


class RunningStep:
    """For every model the sum over clients of alpha_i w_ik times its change, one client at a time.

    The clients' weights are known only when the last one has answered. Until then, sums are kept
    relative to the largest weight so far, so that only one sum per model is in memory.

    Args:
        mu: The smoothing parameter.
    """

    def __init__(self, mu: float) -> None:
        self.mu = mu
        self.losses: dict[str, list[float]] = {}
        self._sums: list[Params] = []
        self._level = -math.inf
        self._total = 0.0

    def add(self, client: str, losses: Sequence[float], changes: Sequence[Params]) -> None:
        """Adds one client.

        Args:
            client: The client's name.
            losses: Its loss with each model.
            changes: Its change of each model.
        """
        self.losses[client] = list(losses)
        fit = -torch.tensor(losses, dtype=torch.float64) / self.mu
        best = float(fit.logsumexp(0))
        self._rise_to(-best)
        weight = math.exp(-best - self._level)
        parts = [
            change * (weight * share)
            for change, share in zip(changes, fit.softmax(0).tolist(), strict=True)
        ]
        pairs = zip(self._sums, parts, strict=True)
        self._sums = [one + other for one, other in pairs] if self._sums else parts
        self._total += weight

    def _rise_to(self, level: float) -> None:
        if level > self._level:
            factor = math.exp(self._level - level)
            self._sums = [part * factor for part in self._sums]
            self._total *= factor
            self._level = level

    @property
    def table(self) -> Tensor:
        """The losses of all clients that were added, one row per client."""
        return torch.tensor(list(self.losses.values()), dtype=torch.float64)

    @property
    def steps(self) -> list[Params]:
        """The weighted sum of the changes of every model."""
        return [part / self._total for part in self._sums]
