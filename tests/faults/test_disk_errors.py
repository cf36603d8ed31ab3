"""A disk that is full or broken at any moment: one sentence, and nothing finished is lost."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from tests.faults.runs import go, outcome
from tests.faults.system_calls import Listener, listening

from consort.errors import ConsortError

CHANGING = {"open", "write", "fsync", "replace", "mkdir", "truncate", "ftruncate", "unlink"}


class Broken(Listener):
    """The so-many-th call that changes the disk fails; of what is written, half arrives."""

    def __init__(self, moment: int, number: int) -> None:
        self.left, self.number = moment, number
        self.failed = ""

    def before(self, call: str, path: str, arguments: tuple[Any, ...]) -> None:
        if call not in CHANGING or path.endswith(".lock"):
            return
        self.left -= 1
        if self.left == 0:
            self.failed = f"{call} of {path}"
            if call == "write":
                os.pwritev(arguments[0], [arguments[1][: len(arguments[1]) // 2]], 0)
            raise OSError(self.number, os.strerror(self.number))


@pytest.mark.parametrize(("number", "workers", "step"), [
    (errno.ENOSPC, 1, 1), (errno.EIO, 1, 1), (errno.ENOSPC, 2, 5),
])  # fmt: skip
def test_a_disk_that_fails_at_any_moment(number, workers, step, memory_folder: Path):
    go(memory_folder / "straight")
    expected = outcome(memory_folder / "straight")
    moment = 1
    while True:
        folder, disk = memory_folder / f"failed-{moment}" / "run", Broken(moment, number)
        folder.parent.mkdir()
        with listening(folder.parent, disk):
            try:
                go(folder, workers)
            except ConsortError as error:
                said = str(error)
            else:
                said = ""
        if not (disk.failed or said):  # neither in this process nor in a worker
            break
        assert said or disk.failed.startswith("unlink"), disk.failed
        if said:
            assert str(folder.parent) in said, disk.failed
            assert f"[Errno {number}] {os.strerror(number)}" in said, disk.failed
            assert "\n" not in said
            assert not list(folder.rglob("*.tmp")), disk.failed
        go(folder)
        assert outcome(folder) == expected, disk.failed
        moment += step
    assert moment > 40
