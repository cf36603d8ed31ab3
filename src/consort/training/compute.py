"""Settings of the arithmetic: what can change bits is here, and so in the recipe."""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass

import torch

from consort.core.bounds import Count

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3


@dataclass(frozen=True)
class Compute:
    """How numbers are computed. The same settings give the same bits on every engine."""

    threads: Count = 1
    """Threads per client; more than one is slower for small models."""
    channels_last: bool = True
    """Store images and convolutions with the channel innermost: faster on CPUs."""
    cohort_step: bool = False
    """Train all clients of a cohort in one batched step; for tiny models, exact to about 1e-6."""

    count_flops: bool = False
    """Count the operations of every client's calls, which makes them slower."""

    def apply(self) -> None:
        """Sets this process up."""
        torch.set_num_threads(self.threads)
        keep_freed_pages()


def keep_freed_pages() -> None:
    """Tells glibc to reuse freed memory instead of returning it and faulting it in each step.

    It changes no number. Where there is no glibc, nothing happens.
    """
    if sys.platform != "linux":
        return
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return
    mallopt(_M_MMAP_THRESHOLD, 1 << 30)
    mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)
    mallopt(_M_TOP_PAD, 64 << 20)
