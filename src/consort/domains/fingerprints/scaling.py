"""From a scan of any size to a square of one size."""

from __future__ import annotations

import numpy as np

from consort.domains.fingerprints.dataset import Images


def squared(scan: Images, size: int, zoom: float = 1.0) -> Images:
    """The scan in a square with even margins; or the part of it in which most happens, zoomed.

    The sides keep their proportion. Margins have the grey that is met at the scan's edge.
    """
    from PIL import Image

    side = max(round(max(scan.shape) / zoom), 1)
    paper = np.median(np.concatenate([*scan[[0, -1]], *scan[:, [0, -1]].T]))
    around = np.pad(scan, side, constant_values=np.uint8(paper))
    row, column = _busiest(scan) if zoom > 1 else ((length - 1) / 2 for length in scan.shape)
    top, left = (round(place - (side - 1) / 2) + side for place in (row, column))
    part = Image.fromarray(around[top : top + side, left : left + side])
    return np.asarray(part.resize((size, size), Image.Resampling.BILINEAR))


def _busiest(scan: Images) -> tuple[float, float]:
    """The mean place of all changes of grey between neighbours; the middle, if there are none."""
    grey = scan.astype(np.float64)
    changes = np.abs(np.diff(grey, axis=0, append=grey[-1:])) + np.abs(
        np.diff(grey, axis=1, append=grey[:, -1:])
    )
    if not changes.any():
        changes += 1
    row, column = (
        float(np.average(np.arange(length), weights=changes.sum(1 - axis)))
        for axis, length in enumerate(scan.shape)
    )
    return row, column


def without_frame(scan: Images, above: int, below: int, left: int, right: int) -> Images:
    """Without so many rows and columns at each edge; a scan that is too small stays whole."""
    height, width = scan.shape
    if height <= above + below or width <= left + right:
        return scan
    return scan[above : height - below, left : width - right]
