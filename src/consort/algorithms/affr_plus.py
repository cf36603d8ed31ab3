"""AFFR with smoothed relative gaps of the loss, which multiply weights in place of moving them.

Our own. Accuracies of verification soon are all near 100 %, and with few validation examples they
jump; losses tell more, and a mean over rounds jumps less. AFFR always takes a whole step, however
small the largest gap is; here small gaps change little, and no client is thrown out.
"""

from __future__ import annotations

from dataclasses import dataclass

from consort.algorithms.affr import AFFR, Gap, Rule
from consort.core.bounds import Probability


@dataclass(frozen=True)
class AFFRPlus(AFFR):
    """AFFR whose weights grow by a factor where the global model has been worse for long."""

    gap: Gap = "relative_loss"
    rule: Rule = "exponential"
    per_client: bool = False
    memory: Probability = 0.5
