"""Averaging that equalises the clients' generalisation gaps (FedDG-GA).

Zhang, Xu, Yao, Zhang, Tian and Wang: Federated Domain Generalization with Generalization
Adjustment, CVPR 2023, with the weights as in the released code: all start equal, and gaps are not
centred around their mean.
"""

from __future__ import annotations

from dataclasses import dataclass

from consort.algorithms.affr import AFFR, Gap, Rule
from consort.core.bounds import NonNegativeFloat, Probability
from consort.core.messages import Replies


@dataclass(frozen=True)
class FedDGGA(AFFR):
    """AFFR's predecessor: gaps of the loss, not centred, from equal weights."""

    step: Probability = 0.2
    gap: Gap = "loss"
    rule: Rule = "feddg_ga"
    dead_zone: NonNegativeFloat = 0.0

    def first_weights(self, replies: Replies) -> dict[str, float]:
        """The same for all clients, whatever their number of examples."""
        return dict.fromkeys(replies, 1.0)
