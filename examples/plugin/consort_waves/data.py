"""Waves of random frequencies."""

from __future__ import annotations

import numpy as np
import torch

from consort import Dataset, Examples
from consort_waves.task import Frequency


def waves(seed: int, *, examples: int = 400, samples: int = 64, noise: float = 0.3) -> Dataset:
    """Noisy sine waves; the task `swing` is to tell how often they swing."""
    rng = np.random.default_rng(seed)
    frequency = rng.uniform(1, 8, examples)
    phase = rng.uniform(0, 2 * np.pi, examples)
    time = np.linspace(0, 1, samples, endpoint=False)
    values = np.sin(2 * np.pi * frequency[:, None] * time + phase[:, None])
    values += noise * rng.standard_normal(values.shape)
    return Dataset(
        name="waves",
        examples=Examples(torch.tensor(values).float(), {"swing": torch.tensor(frequency).float()}),
        tasks={"swing": Frequency()},
        labels=frequency.astype(np.int64),  # for partitions with label skew
    )
