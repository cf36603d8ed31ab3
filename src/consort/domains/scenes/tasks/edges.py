"""Edge detection."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from consort.domains.scenes.metrics.dense import best_f_measure
from consort.domains.scenes.metrics.edges import count_matches, thinned
from consort.domains.scenes.tasks.dense import IGNORED, DenseTask, mean_over
from consort.tasks.task import Meter

THRESHOLDS = tuple(step / 100 for step in range(1, 100))


class EdgesMeter:
    """The F-measure of thinned edges at the best threshold for all images (ODS), and the loss.

    Predicted and true pixels are matched one to one.

    Args:
        task: The task that is evaluated.
    """

    def __init__(self, task: Edges) -> None:
        self.task = task
        self.counts = torch.zeros(3, len(THRESHOLDS), dtype=torch.int64)
        self.pixels, self.loss = 0, 0.0

    def update(self, output: Tensor, target: Tensor) -> None:
        """Adds a batch of logits (`output`) and labels (`target`)."""
        known = target != IGNORED
        strengths = thinned(output[:, 0].sigmoid())
        reach = self.task.tolerance * (target.shape[1] ** 2 + target.shape[2] ** 2) ** 0.5
        self.counts += count_matches(strengths, target == 1, known, max(1.0, reach), THRESHOLDS)
        self.pixels += int(known.sum())
        self.loss += float(self.task.losses(output, target)[known].double().sum())

    def compute(self) -> dict[str, float]:
        """The metrics; empty if no pixel was labelled."""
        if not self.pixels:
            return {}
        return {
            "ods_f": best_f_measure(self.counts, beta_squared=1.0),
            "loss": self.loss / self.pixels,
        }


@dataclass(frozen=True)
class Edges(DenseTask):
    """Edge detection: edge (1) or not (0); reported by the F-measure at the best threshold."""

    tolerance: float = 0.0075
    """The largest distance of a match, relative to the diagonal of the image; at least a pixel."""
    positive: float = 0.95
    """The weight of edge pixels in the loss; other pixels have 1 minus it."""
    metric: str = "ods_f"
    higher_is_better: bool = True

    @property
    def outputs(self) -> int:
        """One logit."""
        return 1

    def losses(self, output: Tensor, target: Tensor) -> Tensor:
        """The weighted binary cross entropy of every pixel.

        Args:
            output: Logits, images x 1 x height x width.
            target: 1, 0 or `IGNORED`, images x height x width.

        Returns:
            Images x height x width.
        """
        edge = target == 1
        found = F.binary_cross_entropy_with_logits(
            output[:, 0], edge.to(output.dtype), reduction="none"
        )
        return found * torch.where(edge, self.positive, 1 - self.positive)

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """The mean of `losses` of `output` and `target` over labelled pixels."""
        return mean_over(self.losses(output, target), target != IGNORED)

    def meter(self) -> Meter:
        """A new, empty meter."""
        return EdgesMeter(self)
