"""What a disk may hold after a power cut: what was not synced may be there, in part, or not at all.

A run is recorded, with the order of its writes, syncs, renames and deletions. At every moment of it
the content of a file is certain up to the last `fsync` of the file, and the names in a folder up to
the last `fsync` of the folder. Whatever came later may be lost, file by file and folder by folder.
"""

from __future__ import annotations

import base64
import json
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults.system_calls import CREATING, Listener

Content = dict[str, bytes | None]
"""Files by their path below the folder; folders have no content."""


class Recorder(Listener):
    """Writes all calls to a log, which forked workers write to as well."""

    def __init__(self, log: Path, root: Path) -> None:
        self.root = str(root)
        self.log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.write, self.existed = os.write, False

    def before(self, call: str, path: str, arguments: tuple[Any, ...]) -> None:
        self.existed = os.path.lexists(path)

    def after(self, call: str, path: str, arguments: tuple[Any, ...], result: Any) -> None:
        name = os.path.relpath(path, self.root)
        match call:
            case "open":
                if arguments[1] & CREATING and not self.existed:
                    self.note("create", name, os.fstat(result).st_ino)
                elif arguments[1] & os.O_TRUNC:
                    self.note("truncate", os.fstat(result).st_ino, 0)
            case "write":
                end = os.lseek(arguments[0], 0, os.SEEK_CUR)
                data = base64.b64encode(arguments[1][:result]).decode()
                self.note("write", os.fstat(arguments[0]).st_ino, end - result, data)
            case "truncate" | "ftruncate":
                self.note("truncate", Path(path).stat().st_ino, arguments[1])
            case "fsync" | "fdatasync":
                folder = Path(path).is_dir()
                self.note("sync", None if folder else os.fstat(arguments[0]).st_ino, name)
            case "replace" | "rename":
                self.note("rename", name, os.path.relpath(arguments[1], self.root))
            case "unlink" | "remove" | "rmdir":
                self.note("unlink", name)
            case "mkdir":
                self.note("mkdir", name)

    def note(self, *operation: Any) -> None:
        self.write(self.log, json.dumps(operation).encode() + b"\n")


@dataclass
class Node:
    """A file without a name."""

    certain: bytes = b""
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)
    """Writes (offset, data) and truncations (length, None) since the last sync."""

    def after(self, count: int | None = None, last: str = "") -> bytes:
        """The content if only so many of the pending changes arrived, the last one damaged."""
        content, changes = self.certain, self.pending[:count]
        for number, (offset, data) in enumerate(changes, 1):
            if data is None:
                content = content[:offset].ljust(offset, b"\0")
                continue
            if last and number == len(changes):
                data = data[: len(data) // 2] if last == "torn" else bytes(len(data))
            content = content[:offset].ljust(offset, b"\0") + data + content[offset + len(data) :]
        return content


@dataclass
class Disk:
    """Names and contents that are certain, and what happened since in memory only."""

    nodes: list[Node] = field(default_factory=list)
    numbers: dict[int, int] = field(default_factory=dict)
    names: dict[str, int | None] = field(default_factory=dict)
    pending: list[tuple[str, ...]] = field(default_factory=list)
    seen: dict[str, int | None] = field(default_factory=dict)
    """The names as the program sees them."""

    def do(self, operation: list[Any]) -> None:
        match operation:
            case ["create", name, inode]:
                self.numbers[inode] = len(self.nodes)
                self.nodes.append(Node())
                self._rename(("link", name, str(self.numbers[inode])))
            case ["mkdir", name]:
                self._rename(("link", name, ""))
            case ["unlink", name] | ["rename", name, _]:
                self._rename(tuple(operation))
            case ["write", inode, offset, data]:
                self.nodes[self.numbers[inode]].pending.append((offset, base64.b64decode(data)))
            case ["truncate", inode, length]:
                self.nodes[self.numbers[inode]].pending.append((length, None))
            case ["sync", None, folder]:
                for change in self.pending:
                    if _folder(change) == folder:
                        _apply(self.names, change)
                self.pending = [change for change in self.pending if _folder(change) != folder]
            case ["sync", inode, _] if inode in self.numbers:
                node = self.nodes[self.numbers[inode]]
                node.certain, node.pending = node.after(), []

    def _rename(self, change: tuple[str, ...]) -> None:
        _apply(self.seen, change)
        self.pending.append(change)

    def after_a_power_cut(self, chance: random.Random) -> Iterator[tuple[str, Content]]:
        """What the disk may hold now."""
        everything, nothing = lambda _: None, lambda _: 0
        folders = sorted({_folder(change) for change in self.pending})
        yield "all is there", self._content(everything, everything)
        yield "only what was synced is there", self._content(nothing, nothing)
        yield "names without contents", self._content(nothing, everything)
        yield "contents without names", self._content(everything, nothing)
        for damage in ("torn", "zeros"):
            yield damage, self._content(everything, everything, damage)
        for lost in folders:
            yield (
                f"names in {lost} are lost",
                self._content(everything, lambda folder, lost=lost: 0 if folder == lost else None),
            )
        for number in range(2):
            yield (
                f"chance {number}",
                self._content(
                    lambda node: chance.randint(0, len(node.pending)),
                    lambda _: chance.randint(0, len(self.pending)),
                ),
            )

    def _content(self, arrived: Any, renamed: Any, last: str = "") -> Content:
        names = dict(self.names)
        for folder in sorted({_folder(change) for change in self.pending}):
            changes = [change for change in self.pending if _folder(change) == folder]
            for change in changes[: renamed(folder)]:
                _apply(names, change)
        contents = [node.after(arrived(node), last) for node in self.nodes]
        reachable: Content = {}
        for name in sorted(names, key=lambda name: name.count("/")):
            parent = name.rpartition("/")[0]
            if not parent or parent in reachable:
                node = names[name]
                reachable[name] = None if node is None else contents[node]
        return reachable


def _folder(change: tuple[str, ...]) -> str:
    return change[1].rpartition("/")[0] or "."


def _apply(names: dict[str, int | None], change: tuple[str, ...]) -> None:
    match change:
        case ("link", name, number):
            names[name] = int(number) if number else None
        case ("unlink", name):
            names.pop(name, None)
        case ("rename", name, other) if name in names:
            names[other] = names.pop(name)


def put(content: Content, folder: Path) -> None:
    """Writes what a disk holds to a folder."""
    folder.mkdir(parents=True)
    for name, data in content.items():
        if data is None:
            (folder / name).mkdir()
        else:
            (folder / name).write_bytes(data)


def disks(log: Path) -> Iterator[Disk]:
    """The disk after each of the recorded operations."""
    disk = Disk()
    for line in log.read_bytes().splitlines():
        disk.do(json.loads(line))
        yield disk
