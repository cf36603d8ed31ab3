"""Undoes FP-DFSN: outside the patches around minutiae, one division restores the image."""

from __future__ import annotations

from torch import Tensor


def rescaled(obfuscated: Tensor, beta: float) -> Tensor:
    """Images as they were before FP-DFSN scaled them by 1 - beta; noise remains.

    Args:
        obfuscated: The obfuscated images.
        beta: The share that was removed. With 1, nothing is left and nothing can be restored.
    """
    return obfuscated if beta == 1 else (obfuscated / (1 - beta)).clamp(0, 1)
