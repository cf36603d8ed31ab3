"""What SIGTERM means to a run: stop at once, and say with the exit code that it can be repeated."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from consort.errors import Interrupted


class Terminated(KeyboardInterrupt):
    """SIGTERM arrived; like Ctrl-C, it passes everything that handles errors of clients."""


@contextmanager
def stops_on_sigterm() -> Iterator[None]:
    """Turns SIGTERM into an orderly end: engines are closed, and finished rounds are on disk.

    Worker processes, which inherit this, ignore the signal: they end with the main process.

    Raises:
        Interrupted: SIGTERM arrived.
    """
    owner = os.getpid()

    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        if os.getpid() == owner:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not disturb the end
            raise Terminated

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except Terminated:
        raise Interrupted(
            "stopped by SIGTERM; nothing is lost: repeat the command to continue"
        ) from None
    finally:
        signal.signal(signal.SIGTERM, before)
