"""The classifier of one enrolled user: an RBF-SVM of their references against other people.

It is the machine of the writer-dependent protocol (Hafemann et al. 2017) with coefficients that can
be stored, so that nothing is trained when a signature is verified.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from consort.domains.signatures.writer_dependent import Features, WriterDependent
from consort.metrics.biometric import Scores

VIEWS = 5
"""The number of views whose features can be averaged: as it is, turned, and scaled."""
_TURNS = (0.0, 3.0, -3.0, 0.0, 0.0)
_SCALES = (1.0, 1.0, 1.0, 0.95, 1.05)


@dataclass(frozen=True)
class Machine:
    """A support vector machine as plain numbers."""

    scale: NDArray[np.float64]
    """What features are divided by: their standard deviation over references and background."""
    weights: NDArray[np.float64]
    """The dual coefficient of each reference, and then of each signature of the background."""
    bias: float
    gamma: float

    def scores(self, references: Features, background: Features, queries: Features) -> Scores:
        """The signed distance of each query from the decision boundary, up to a factor.

        Args:
            references: The user's references, as in training.
            background: The signatures of other people, as in training.
            queries: Features of the signatures to score, one row each.
        """
        rows = np.concatenate([references, background]).astype(np.float64) / self.scale
        asked = queries.astype(np.float64) / self.scale
        squares = (asked**2).sum(1)[:, None] + (rows**2).sum(1) - 2 * asked @ rows.T
        found: Scores = np.exp(-self.gamma * np.maximum(squares, 0)) @ self.weights + self.bias
        return found


def machine(
    references: Features, background: Features, protocol: WriterDependent | None = None
) -> Machine:
    """Trains the machine of a user; both classes have the same total weight.

    Args:
        references: Features of the user's genuine signatures.
        background: Features of signatures of other people.
        protocol: C and gamma.
    """
    from sklearn.svm import SVC

    settings = protocol or WriterDependent()
    rows = np.concatenate([references, background]).astype(np.float64)
    scale = rows.std(0)
    scale[scale == 0] = 1
    own = np.arange(len(rows)) < len(references)
    balance = {False: 1.0, True: float((~own).sum() / own.sum())}
    svm = SVC(C=settings.c, gamma=settings.gamma, class_weight=balance)
    svm.fit(rows / scale, own)
    weights = np.zeros(len(rows))
    weights[svm.support_] = svm.dual_coef_[0]
    return Machine(scale, weights, float(svm.intercept_[0]), settings.gamma)


def views(images: Tensor, count: int) -> Tensor:
    """Slightly turned and scaled views of signatures, without randomness.

    Args:
        images: Images x channels x height x width, with black paper.
        count: The number of views, from 1 (the images themselves) to `VIEWS`.

    Returns:
        Views x images x channels x height x width.
    """
    height, width = images.shape[2:]
    found = [images]
    for degrees, scale in zip(_TURNS[1:count], _SCALES[1:count], strict=True):
        angle = torch.tensor(degrees).deg2rad()
        cos, sin, shape = angle.cos() / scale, angle.sin() / scale, height / width
        rows = torch.tensor([[cos, sin * shape, 0.0], [-sin / shape, cos, 0.0]])
        grid = F.affine_grid(
            rows.expand(len(images), 2, 3), list(images.shape), align_corners=False
        )
        found.append(F.grid_sample(images, grid, align_corners=False))
    return torch.stack(found)
