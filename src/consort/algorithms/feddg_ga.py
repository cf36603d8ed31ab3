"""Averaging that equalises how much the clients lose by the global model.

Zhang, Xu, Yao, Zhang, Tian and Wang: Federated Domain Generalization with Generalization
Adjustment, CVPR 2023 (FedDG-GA), with the weights as in the released code.
"""

from __future__ import annotations

from dataclasses import dataclass

from consort.algorithms.affr import AFFR, Gap, Rule
from consort.core.bounds import NotNegative, Probability


@dataclass(frozen=True)
class FedDGGA(AFFR):
    """AFFR's forerunner: gaps of the loss, not centred, from equal weights."""

    step: Probability = 0.2
    gap: Gap = "loss"
    rule: Rule = "feddg_ga"
    dead_zone: NotNegative = 0.0
    equal_start: bool = True
