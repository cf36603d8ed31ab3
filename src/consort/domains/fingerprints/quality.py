"""A quality score of fingerprints from 0 to 100: how much of the scan shows clear ridges.

It is the root of the product of three shares: the coherence of the ridges' direction where there
are any, the energy at periods of ridges, and the area with ridges. It is not NFIQ 2, and its values
differ. The middle score of FVC2002's four sensors is 60, 55, 36 and 50.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from consort.domains.fingerprints.dataset import Images

LEAST = 22
"""Below this score nothing is decided: noise and strongly blurred prints of FVC2002 have less."""
_PERIODS = (3.0, 16.0)
"""Pixels between ridges, with room around 500 ppi and reduced scans."""
_LEAST_AREA = 0.28
"""The share of the scan with changes of grey below which it is something else; a signature, say."""
_ENOUGH = 0.35
"""The share of the scan with ridges that is enough."""


def quality(scan: Images) -> int:
    """The quality of a scan at about 500 pixels per inch.

    Args:
        scan: Grey levels, height x width.

    Returns:
        From 0, nothing like ridges, to 100.
    """
    from scipy.ndimage import sobel, uniform_filter

    if min(scan.shape) < 16 or scan.max() == scan.min():
        return 0
    grey = (scan - scan.mean()) / scan.std()
    x, y = sobel(grey, 1), sobel(grey, 0)
    side = max(14, min(scan.shape) // 16)
    xx, yy, xy = (uniform_filter(part, side) for part in (x * x, y * y, x * y))
    energy = xx + yy
    ridges = energy > 0.2 * np.quantile(energy, 0.95)
    coherence = np.sqrt((xx - yy) ** 2 + 4 * xy**2) / np.maximum(energy, 1e-9)
    share = float(ridges.mean())
    if share < _LEAST_AREA:
        return 0
    product = float(coherence[ridges].mean()) * _in_band(grey) * min(1.0, share / _ENOUGH)
    return round(100 * math.sqrt(product))


def _in_band(grey: NDArray[np.float64]) -> float:
    """The share of the energy at periods of ridges."""
    spectrum = np.abs(np.fft.rfft2(grey)) ** 2
    across, down = np.fft.rfftfreq(grey.shape[1]), np.fft.fftfreq(grey.shape[0])[:, None]
    frequency = np.hypot(across, down)
    shortest, longest = _PERIODS
    band = (frequency >= 1 / longest) & (frequency <= 1 / shortest)
    return float(spectrum[band].sum() / spectrum.sum())
