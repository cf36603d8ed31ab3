"""Processes that are forked from this one, and that end with it."""

from __future__ import annotations

import ctypes
import multiprocessing
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from typing import Any

from consort.errors import UsageError

_PR_SET_PDEATHSIG = 1


def forked(
    serve: Callable[..., None], *arguments: Any, strangers: Sequence[Connection] = ()
) -> tuple[ForkProcess, Connection]:
    """Forks a process, which shares what is loaded and never hears of Ctrl-C.

    Args:
        serve: What the process does: it is given its end of the pipe, then the arguments.
        arguments: Further arguments.
        strangers: This process's ends of the pipes to other processes, which it must not keep open.

    Returns:
        The process, and this process's end of the pipe to it.

    Raises:
        UsageError: This system cannot fork processes.
    """
    if "fork" not in multiprocessing.get_all_start_methods():
        raise UsageError("this system cannot fork processes: use --workers 1 or --jobs 1")
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(
        target=_live, args=(serve, theirs, arguments, [*strangers, ours]), daemon=True
    )
    with _interrupts_held_back():
        process.start()
    theirs.close()
    return process, ours


def _live(
    serve: Callable[..., None],
    pipe: Connection,
    arguments: Sequence[Any],
    strangers: Sequence[Connection],
) -> None:
    """The life of a process: it ends when the other end of its pipe does."""
    _die_with_parent()
    for stranger in strangers:
        stranger.close()
    try:
        serve(pipe, *arguments)
    except (EOFError, ConnectionError):
        return


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """What is forked meanwhile never hears of Ctrl-C, from its first moment on."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _die_with_parent() -> None:
    """Ends this process in the middle of a call, too: a resumed run must be the only writer."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
