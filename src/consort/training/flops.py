"""Counts floating-point operations."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch


class FlopCounter:
    """Counts the operations of matrix products, convolutions and attention in a `with` block.

    A multiplication followed by an addition counts as two operations.

    Args:
        active: Whether anything is counted; if not, the counter costs no time.
    """

    def __init__(self, active: bool) -> None:
        self._mode = _counting() if active else None

    def __enter__(self) -> FlopCounter:
        if self._mode:
            self._mode.__enter__()
        return self

    def __exit__(self, *reason: Any) -> None:
        if self._mode:
            self._mode.__exit__(*reason)

    @property
    def flops(self) -> int:
        """The number of operations so far."""
        return int(self._mode.get_total_flops()) if self._mode else 0


def _counting() -> Any:
    """PyTorch's counter, extended by attention on CPUs, which it does not count by itself."""
    known: Any = import_module("torch.utils.flop_counter")
    forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
    attention = {
        forward: lambda *shapes, **_: known.sdpa_flop_count(*shapes[:3]),
        backward: lambda *shapes, **_: known.sdpa_backward_flop_count(*shapes[:4]),
    }
    return known.FlopCounterMode(display=False, custom_mapping=attention)
