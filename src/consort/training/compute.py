"""Settings of the computation: whatever can change the numbers of a run is in its recipe."""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass

import torch

from consort.core.bounds import PositiveInt

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3


@dataclass(frozen=True)
class Compute:
    """How numbers are computed; the same settings give the same bits on every engine.

    Examples:
        >>> from consort import Compute
        >>> Compute(threads=2).channels_last
        True
    """

    threads: PositiveInt = 1
    """Threads per client; more than one is slower for small models."""
    channels_last: bool = True
    """Whether images and convolutions are stored with channels last, which is faster on CPUs."""
    cohort_step: bool = False
    """Whether clients with tiny models are trained in one batched step, exact to about 1e-6."""
    count_flops: bool = False
    """Whether the operations of every client's calls are counted, which makes them slower."""

    def apply(self) -> None:
        """Applies the settings to this process."""
        torch.set_num_threads(self.threads)
        keep_freed_pages()


def keep_freed_pages() -> None:
    """Makes glibc keep freed memory for reuse, which saves page faults in every training step.

    Numbers are not affected. Without glibc, nothing happens.
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
