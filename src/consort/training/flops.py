"""Counts what a client computes."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch


class FlopCounter:
    """Counts the operations of matrix products, convolutions and attention while it is entered.

    A multiplication and the addition after it are two. If it is not active, nothing is counted
    and nothing costs time.
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
        """What was counted so far."""
        return int(self._mode.get_total_flops()) if self._mode else 0


def _counting() -> Any:
    """Torch's counter, which knows attention on GPUs alone and is told about CPUs."""
    known: Any = import_module("torch.utils.flop_counter")
    forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
    attention = {
        forward: lambda *shapes, **_: known.sdpa_flop_count(*shapes[:3]),
        backward: lambda *shapes, **_: known.sdpa_backward_flop_count(*shapes[:4]),
    }
    return known.FlopCounterMode(display=False, custom_mapping=attention)
