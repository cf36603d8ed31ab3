"""Scaling scans of any size to squares of one size."""

from __future__ import annotations

import numpy as np

from consort.domains.fingerprints.dataset import Images


def squared(scan: Images, size: int, zoom: float = 1.0) -> Images:
    """Scales a scan to a square, keeping its aspect ratio.

    The border is filled with the median grey of the scan's edges.

    Args:
        scan: Grey levels, height x width.
        size: The side of the square in pixels.
        zoom: Above 1, only the part with the most detail is kept, enlarged by this factor.

    Returns:
        Grey levels, `size` x `size`.
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
    """The mean position of all changes of grey between neighbours; the centre if there are none."""
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
    """Removes a frame from a scan.

    Args:
        scan: Grey levels, height x width.
        above: Rows to remove at the top.
        below: Rows to remove at the bottom.
        left: Columns to remove on the left.
        right: Columns to remove on the right.

    Returns:
        The rest; the whole scan if it is not larger than the frame.
    """
    height, width = scan.shape
    if height <= above + below or width <= left + right:
        return scan
    return scan[above : height - below, left : width - right]
