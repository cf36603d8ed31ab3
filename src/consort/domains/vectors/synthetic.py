"""Synthetic vectors to classify, for tiny models and very many clients."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import torch
from pydantic import Field

from consort.core.randomness import derive
from consort.data.dataset import Dataset
from consort.data.examples import Examples
from consort.tasks import Classification

_CLUSTERS = 3
"""Clusters per class; with one, a linear model would suffice."""


def synthetic_vectors(
    seed: int,
    *,
    classes: Annotated[int, Field(ge=2)] = 10,
    examples: Annotated[int, Field(ge=1)] = 10_000,
    features: Annotated[int, Field(ge=1)] = 32,
    noise: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.7,
) -> Dataset:
    """Gaussian clusters, three per class, transformed by a random non-linear map.

    Args:
        seed: The seed of all random choices.
        classes: The number of classes.
        examples: The number of vectors.
        features: The dimension of the vectors.
        noise: The standard deviation within a cluster.

    Returns:
        The data set with the task `classify`.
    """
    rng = np.random.default_rng(derive(seed, "synthetic_vectors"))
    labels = rng.permutation(np.arange(examples) % classes)
    clusters = labels + classes * rng.integers(0, _CLUSTERS, examples)
    centres = rng.standard_normal((classes * _CLUSTERS, features), dtype=np.float32)
    spread = rng.standard_normal((examples, features), dtype=np.float32)
    points = centres[clusters] + np.float32(noise) * spread
    inward = rng.standard_normal((features, 2 * features)) / np.sqrt(features)
    outward = rng.standard_normal((2 * features, features)) / np.sqrt(features)
    vectors = np.sin(points @ inward.astype(np.float32)) @ outward.astype(np.float32)
    return Dataset(
        name="synthetic_vectors",
        examples=Examples(torch.from_numpy(vectors), {"classify": torch.from_numpy(labels)}),
        tasks={"classify": Classification(classes)},
        labels=labels,
    )
