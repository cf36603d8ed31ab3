"""Undoes FP-DFSN: outside the patches around minutiae, one division brings pictures back."""

from __future__ import annotations

from torch import Tensor


def rescaled(obfuscated: Tensor, beta: float) -> Tensor:
    """The pictures before a part `beta` of themselves was taken away; what noise did stays.

    With beta = 1 nothing is left outside the patches, and nothing is brought back.
    """
    return obfuscated if beta == 1 else (obfuscated / (1 - beta)).clamp(0, 1)
