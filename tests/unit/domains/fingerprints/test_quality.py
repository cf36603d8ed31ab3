"""Clear ridges score higher than blurred ones, noise and other things."""

from __future__ import annotations

import numpy as np
from scipy.ndimage import gaussian_filter

from consort.domains.fingerprints.quality import LEAST, quality
from consort.domains.fingerprints.synthetic.prints import synthetic_fingerprints

PRINTS = synthetic_fingerprints(3, fingers=8).examples.inputs[:, 0, 0].numpy()


def test_prints_pass_and_blurred_ones_do_not():
    found = [quality(scan) for scan in PRINTS]
    assert min(found) > LEAST
    assert max(found) <= 100
    assert all(quality(gaussian_filter(scan, 6)) < LEAST for scan in PRINTS)


def test_quality_falls_with_blur():
    for scan in PRINTS[:4]:
        found = [quality(gaussian_filter(scan, sigma)) for sigma in (2, 3, 4)]
        assert found == sorted(found, reverse=True)


def test_what_is_no_print_has_no_quality():
    noise = np.random.default_rng(0).integers(0, 256, (256, 256)).astype(np.uint8)
    assert quality(noise) < LEAST
    assert quality(np.full((90, 90), 255, np.uint8)) == 0
    assert quality(PRINTS[0][:8, :8]) == 0
    page = np.full((120, 200), 255, np.uint8)
    page[60, 20:180] = 0
    assert quality(page) == 0
