"""`kill -9` at random moments, also between two calls of the operating system."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.faults.runs import go, outcome
from tests.faults.system_calls import Listener, listening

KILLS = int(os.environ.get("CONSORT_KILLS", "4"))
"""With one process and with two workers; set it higher to search for longer."""
FORK = multiprocessing.get_context("fork")


class Killer(Listener):
    """Counts what a process does to the disk, and kills its group at a moment.

    Forked workers count on their own from where the process was that forked them.
    """

    def __init__(self, moment: int) -> None:
        self.moment, self.count = moment, 0

    def before(self, call: str, path: str, arguments: tuple[Any, ...]) -> None:
        self.count += 1
        if self.count == self.moment:
            os.killpg(0, signal.SIGKILL)


def work(folder: Path, workers: int, moment: int) -> None:
    os.setpgid(0, 0)
    with listening(folder.parent, Killer(moment)):
        go(folder, workers)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_that_is_killed_at_random_moments_ends_the_same(workers: int, memory_folder: Path):
    counter = Killer(0)
    with listening(memory_folder, counter):
        go(memory_folder / "straight")
    expected = outcome(memory_folder / "straight")
    chance = random.Random(workers)
    for number in range(KILLS):
        folder, kills = memory_folder / f"killed-{number}", 0
        while True:
            moment = chance.randint(1, counter.count)
            child = FORK.Process(target=work, args=(folder, workers, moment))
            child.start()
            child.join()
            if child.exitcode == 0:
                break
            assert child.exitcode == -signal.SIGKILL
            kills += 1
            if kills == 3:
                go(folder)
                break
        assert outcome(folder) == expected, (number, moment)
