"""Synthetic fingerprints from several sensors: the counterpart of FVC2002 and SOCOFing."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

from consort.core.randomness import derive
from consort.data.dataset import Dataset
from consort.domains.fingerprints.dataset import fingerprint_dataset
from consort.domains.fingerprints.pairs import Pairing, paired
from consort.domains.fingerprints.scan import PrintScan
from consort.domains.fingerprints.synthetic.impressions import MARGIN, SENSORS, impression
from consort.domains.fingerprints.synthetic.ridges import PERIOD, master_print


def synthetic_fingerprints(
    seed: int,
    *,
    fingers: Annotated[int, Field(ge=1)] = 40,
    impressions: Annotated[int, Field(ge=1)] = 4,
    sensors: Annotated[int, Field(ge=1, le=len(SENSORS))] = 3,
    size: Annotated[int, Field(ge=32)] = 96,
    pairs: Pairing = "impressions",
    per_finger: Annotated[int, Field(ge=0)] = 0,
) -> Dataset:
    """Ridge patterns grown along random orientation fields, taken by different sensors.

    Args:
        seed: The seed of all random choices.
        fingers: The number of fingers.
        impressions: The number of impressions of each finger.
        sensors: The number of sensors; fingers take turns among them.
        size: The side of the images in pixels.
        pairs: What a pair is made of.
        per_finger: The largest number of pairs of one finger; 0 for all.

    Returns:
        The data set with the task `verify`; its domains are the sensors.

    Raises:
        UsageError: If `pairs` needs more impressions than there are.
    """
    images = np.empty((fingers, impressions, size, size), dtype=np.uint8)
    sensor = np.arange(fingers) % sensors
    for finger, prints in enumerate(images):
        rng = np.random.default_rng(derive(seed, "synthetic_fingerprints", finger))
        period = PERIOD * rng.uniform(0.88, 1.12)
        whole = master_print(rng, round(MARGIN * size), period)
        for place in range(impressions):
            prints[place] = impression(rng, whole, size, SENSORS[sensor[finger]])
    numbers = np.repeat(np.arange(fingers), impressions)
    both, owners = paired(
        "synthetic_fingerprints", images.reshape(-1, size, size), numbers, pairs, per_finger, seed
    )
    return fingerprint_dataset(
        "synthetic_fingerprints",
        both,
        owners,
        sensor[owners] if sensors > 1 else None,
        PrintScan(size),
    )
