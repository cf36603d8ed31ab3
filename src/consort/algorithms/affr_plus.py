"""AFFR with smoothed relative gaps of the loss, which multiply the weights.

Our variation of Yan et al.: AFFR (see `affr`). It differs in two ways:

- Gaps are relative differences of losses, smoothed over rounds. Accuracies of verification are soon
  all near 100 %, and with few validation examples they jump.
- Gaps multiply weights. AFFR always takes a whole step, however small the largest gap is; here
  small gaps change little, and no weight becomes 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from consort.algorithms.affr import AFFR, Gap, Rule
from consort.core.bounds import Probability
from consort.training.client import Client


@dataclass(frozen=True)
class AFFRPlus(AFFR):
    """AFFR whose weights grow by a factor where the global model has been worse for long."""

    gap: Gap = "relative_loss"
    rule: Rule = "exponential"
    per_client: bool = False
    memory: Probability = 0.5
    """The share of a client's earlier gaps in its smoothed gap."""

    def counted(self, client: Client, gap: float) -> float:
        """The gap, smoothed over rounds, or 0 if it lies in the dead zone."""
        if self.memory and math.isfinite(gap):
            before = client.state.get("gap", gap)
            gap = client.state["gap"] = self.memory * before + (1 - self.memory) * gap
        return super().counted(client, gap)
