"""Whether the picture of a signature is good enough to decide by, or another scan is needed.

The bounds leave room around 400 pages each of CEDAR and BHSig260 Bengali (reduced scans);
`benchmarks/pictures.py` counts what they refuse.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from consort.data.page import Grey, otsu
from consort.domains.signatures.preprocess import Size

LEAST_CONTRAST = 25.0
"""Grey levels between ink and paper."""
MOST_INK = 0.25
"""The share of a page that ink may cover; signatures cover an eighth at most."""
MOST_PATTERN = 16.0
"""The standard deviation of the paper's grey levels; that of plain paper is 12 at most."""
MOST_CUT = 0.05
"""The share of the page's border that ink may cover."""
WIDEST_GAP = (0.3, 0.4)
"""The highest and the widest gap in a signature, relative to its height and its width."""
_PART = 0.2
"""The share of the ink on each side of a gap from which on it separates two signatures."""


def complaint(page: Grey, size: Size) -> str | None:
    """What is wrong with the picture of a signature.

    Args:
        page: Grey levels of the page.
        size: Height and width of the model's input.

    Returns:
        The rest of a sentence that begins with the name of the file and asks for another scan;
        None if the picture can be used.
    """
    threshold = otsu(page)
    if threshold is None:
        return "contains no signature: the page is empty"
    ink = page <= threshold
    paper = page[~ink].astype(np.float64)
    if paper.mean() - page[ink].mean() < LEAST_CONTRAST:
        return "contains no signature: the page is empty or the ink too pale; scan it again darker"
    if ink.mean() > MOST_INK:
        return "does not show dark ink on plain, light paper: scan the signature alone"
    if paper.std() > MOST_PATTERN:
        return "has patterned or shaded paper: scan the signature on plain white paper"
    rows, columns = (np.flatnonzero(ink.any(axis)) for axis in (1, 0))
    longer = int(max(rows[-1] - rows[0], columns[-1] - columns[0])) + 1
    if longer < max(size) / 3:
        return (
            f"shows a signature of only {longer} pixels: scan it at a higher resolution, at least "
            f"{max(size)} pixels wide"
        )
    if ink.sum() < max(size) / 2:
        return "has too little ink for a signature: scan the whole signature"
    if np.concatenate([ink[0], ink[-1], ink[:, 0], ink[:, -1]]).mean() > MOST_CUT:
        return "cuts the signature off: scan it with a margin on every side"
    gaps = _gap(ink.sum(1)), _gap(ink.sum(0))
    if any(gap > widest for gap, widest in zip(gaps, WIDEST_GAP, strict=True)):
        return "shows two signatures, or one and something else: scan one signature alone"
    return None


def _gap(profile: NDArray[np.int64]) -> float:
    """The longest gap that has enough ink on both sides, relative to the whole length."""
    used = np.flatnonzero(profile)
    before = np.cumsum(profile)[used[:-1]] / profile.sum()
    gaps = (np.diff(used) - 1)[(before >= _PART) & (before <= 1 - _PART)]
    return float(gaps.max(initial=0) / (used[-1] - used[0] + 1))
