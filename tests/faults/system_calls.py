"""Listens to what a program asks the operating system to do with the files below a folder.

All that changes files goes through functions of `os`, also in forked workers; what is written with
`open` is sent through them here. Nothing of Consort is replaced, only the operating system.
"""

from __future__ import annotations

import builtins
import io
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

REAL_OPEN = io.open
CREATING = os.O_CREAT | os.O_TRUNC
CALLS = (
    "open", "write", "fsync", "fdatasync", "truncate", "ftruncate", "close",
    "replace", "rename", "unlink", "remove", "mkdir", "rmdir",
)  # fmt: skip


class Listener:
    """Is told of every call that may change a file, before and after it."""

    def before(self, call: str, path: str, arguments: tuple[Any, ...]) -> None:
        """May raise an error in place of the call, or end the process."""

    def after(self, call: str, path: str, arguments: tuple[Any, ...], result: Any) -> None:
        """Is told what the call returned."""


class System:
    """The functions of `os` as a listener lets a program have them."""

    def __init__(self, root: Path, listener: Listener) -> None:
        self.root, self.listener = str(root), listener
        self.real = {name: getattr(os, name) for name in CALLS}
        self.paths: dict[int, str] = {}

    def path_of(self, place: Any) -> str:
        if isinstance(place, int):
            return self.paths.get(place, "")
        path = os.path.abspath(os.fspath(place))  # noqa: PTH100
        below = path == self.root or path.startswith(f"{self.root}/")
        return path if below else ""

    def wrapped(self, name: str) -> Callable[..., Any]:
        real = self.real[name]

        def call(place: Any, *arguments: Any, **options: Any) -> Any:
            path = self.path_of(place)
            reading = name == "open" and not arguments[0] & (CREATING | os.O_WRONLY | os.O_RDWR)
            quiet = not path or reading or name == "close"
            told = (place, *arguments)
            if not quiet:
                self.listener.before(name, path, told)
            result = real(place, *arguments, **options)
            if name == "close" and isinstance(place, int):
                self.paths.pop(place, None)
            if name == "open" and path:
                self.paths[result] = path
            if not quiet:
                self.listener.after(name, path, told, result)
            return result

        return call

    def open(self, file: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        """The built-in `open`, whose files write through `os`."""
        reading = not set(mode) & set("wax+")
        if reading or isinstance(file, int) or not self.path_of(file):
            return REAL_OPEN(file, mode, *arguments, **options)
        raw = _File(os.open(file, _flags(mode), 0o666), mode)
        if "b" in mode:
            return io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
        return io.TextIOWrapper(io.BufferedWriter(raw), encoding="utf-8")


def _flags(mode: str) -> int:
    flags = os.O_RDWR if "+" in mode else os.O_WRONLY
    kinds = {"w": os.O_CREAT | os.O_TRUNC, "a": os.O_CREAT | os.O_APPEND, "x": os.O_CREAT}
    return flags | sum(flag for letter, flag in kinds.items() if letter in mode)


class _File(io.RawIOBase):
    def __init__(self, descriptor: int, mode: str) -> None:
        self.descriptor, self.mode_ = descriptor, mode

    def fileno(self) -> int:
        return self.descriptor

    def readable(self) -> bool:
        return "+" in self.mode_

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return os.readv(self.descriptor, [buffer])

    def write(self, data: Any) -> int:
        return os.write(self.descriptor, bytes(data))

    def seek(self, offset: int, whence: int = 0) -> int:
        return os.lseek(self.descriptor, offset, whence)

    def truncate(self, size: int | None = None) -> int:
        size = self.tell() if size is None else size
        os.ftruncate(self.descriptor, size)
        return size

    def close(self) -> None:
        if not self.closed:
            super().close()
            os.close(self.descriptor)


@contextmanager
def listening(root: Path, listener: Listener) -> Iterator[System]:
    """All calls of this process, and of those it forks, that concern files below a folder."""
    system = System(root, listener)
    with ExitStack() as stack:
        for name in CALLS:
            stack.enter_context(patch.object(os, name, system.wrapped(name)))
        for module in (builtins, io):
            stack.enter_context(patch.object(module, "open", system.open))
        yield system
