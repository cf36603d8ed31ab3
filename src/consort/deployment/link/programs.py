"""Runs Flower's programs as child processes."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from consort.core.files import make_folder

_PR_SET_PDEATHSIG = 1


def free_port() -> int:
    """The number of a local TCP port that is not in use."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start_program(
    program: str, *arguments: str, log: Path, level: str = "INFO", inherited: Sequence[int] = ()
) -> subprocess.Popen[bytes]:
    """Starts a Python program that ends when this process ends; only its owner can read its files.

    Args:
        program: The source code to run.
        arguments: The command line arguments of the program.
        log: The file for its output.
        level: Flower's log level.
        inherited: Open file descriptors that the program may use as well.

    Returns:
        The running process.
    """
    make_folder(log.parent)
    log.touch(mode=0o600)
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-c", program, *arguments],
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=os.environ | {"FLWR_LOG_LEVEL": level},
            umask=0o077,
            pass_fds=inherited,
            preexec_fn=_die_with_parent if sys.platform == "linux" else None,
        )


@contextmanager
def readable_once(data: bytes) -> Iterator[tuple[str, int]]:
    """A secret as a file that a child process can read once, and that is never on a disk.

    Args:
        data: The secret, of a few kilobytes.

    Yields:
        The path, and the file descriptor that the child must inherit.
    """
    reading, writing = os.pipe()
    try:
        os.write(writing, data)
        os.close(writing)
        yield f"/dev/fd/{reading}", reading
    finally:
        os.close(reading)


def _die_with_parent() -> None:
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C is handled by this process, which then ends its children
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def end_program(process: subprocess.Popen[bytes] | None) -> None:
    """Terminates a process, and kills it if it has not ended after five seconds."""
    if process is None:
        return
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
