"""Features of signatures as a model file computes them, averaged over views."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from consort.domains.signatures.enrolment import views as views_of
from consort.domains.signatures.writer_dependent import Features
from consort.training.scoring import BATCH

Apply = Callable[[Tensor], tuple[Tensor, ...]]
"""Maps a batch of inputs to features and the outputs of the tasks `identify` and `detect`."""


@torch.inference_mode()
def features_and_logits(
    apply: Apply, inputs: Tensor, views: int, detector: int = -1
) -> tuple[Features, NDArray[np.float64]]:
    """The mean features and the mean logit of the detection head.

    Args:
        apply: The model.
        inputs: Images x channels x height x width.
        views: The number of views that are averaged.
        detector: The place of the detection head among the outputs.

    Returns:
        One row of features and one logit for each image.
    """
    features, logits = [], []
    for batch in torch.split(inputs, BATCH):
        outputs = [apply(view) for view in views_of(batch.contiguous(), views)]
        features.append(torch.stack([found[0] for found in outputs]).mean(0))
        logits.append(torch.stack([found[detector] for found in outputs]).double().mean(0))
    return torch.cat(features).numpy(), torch.cat(logits).flatten().numpy()
