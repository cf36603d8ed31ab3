"""The background set of a model file: features of other people, against whom users are enrolled.

Only generated people, or people who agreed to it, may be in it: everybody with the file has it.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass

import numpy as np
import torch

from consort.data.page import PAPER
from consort.domains.signatures.dataset import ink
from consort.domains.signatures.preprocess import preprocess
from consort.domains.signatures.scan import Scan
from consort.domains.signatures.synthetic.signatures import synthetic_signatures
from consort.domains.signatures.writer_dependent import Features
from consort.use.features import Apply, features_and_logits

PEOPLE, EACH = 16, 4
_SEED = 25


@dataclass(frozen=True)
class Background:
    """Features of other people's signatures, in half precision as base64."""

    origin: str
    """Who they are."""
    people: int
    width: int
    """The number of features."""
    values: str

    @classmethod
    def of(cls, origin: str, people: int, features: Features) -> Background:
        """Packs features.

        Args:
            origin: Who the people are.
            people: How many there are.
            features: One row for each signature.
        """
        packed = np.ascontiguousarray(features.clip(-65000, 65000), dtype="<f2").tobytes()
        return cls(origin, people, features.shape[1], base64.b64encode(packed).decode("ascii"))

    @property
    def features(self) -> Features:
        """One row for each signature."""
        values = np.frombuffer(base64.b64decode(self.values), dtype="<f2")
        return values.reshape(-1, self.width).astype(np.float32)


def synthetic_background(apply: Apply, scan: Scan, views: int) -> Background:
    """The background set of generated people.

    Args:
        apply: The model.
        scan: How an image becomes an input.
        views: The number of views that are averaged.
    """
    height, width = scan.size
    size = (height, width) if min(height, width) >= 16 else (16, 16)
    people = synthetic_signatures(_SEED, users=PEOPLE, genuine=EACH, forged=0, size=size)
    images = people.examples.tensor[:, 0].numpy()
    if scan.cleaned:
        images = np.stack([preprocess(PAPER - image, scan.size) for image in images])
    inputs = ink(torch.from_numpy(np.ascontiguousarray(images))[:, None])
    features, _ = features_and_logits(apply, inputs, views)
    return Background.of("generated people", PEOPLE, features)
