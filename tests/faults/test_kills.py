"""`kill -9` at random moments, also between two calls of the operating system."""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.faults.runs import ROUNDS, go, outcome
from tests.faults.system_calls import Listener, listening
from tests.unit.cli.command import measured

from consort.results.result import Result
from consort.run.cleaning import clean
from consort.run.folder import read_description

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


def work(folder: Path, workers: int, moment: int, rounds: int = ROUNDS) -> None:
    os.setpgid(0, 0)
    with listening(folder.parent, Killer(moment)):
        go(folder, workers, rounds=rounds)


def killed(target: Callable[..., None], *arguments: Any) -> bool:
    """Whether a process of its own was killed before it came to its end."""
    child = FORK.Process(target=target, args=arguments)
    child.start()
    child.join()
    assert child.exitcode in (0, -signal.SIGKILL)
    return child.exitcode != 0


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
            if not killed(work, folder, workers, moment):
                break
            kills += 1
            if kills == 3:
                go(folder)
                break
        assert outcome(folder) == expected, (number, moment)


def test_an_extension_that_is_killed_at_any_moment_ends_the_same(memory_folder: Path):
    """Also in its first steps, which repeat the last round and change what `run.json` says."""
    more = ROUNDS + 1
    go(memory_folder / "straight", rounds=more)
    go(memory_folder / "short")
    counter = Killer(0)
    shutil.copytree(memory_folder / "short", memory_folder / "counted")
    with listening(memory_folder, counter):
        go(memory_folder / "counted", rounds=more)
    expected = outcome(memory_folder / "straight")
    short = outcome(memory_folder / "short")
    chance = random.Random(3)
    moments = [*range(1, 9), *(chance.randint(9, counter.count) for _ in range(KILLS))]
    back = 0
    for moment in moments:
        folder = Path(shutil.copytree(memory_folder / "short", memory_folder / f"at-{moment}"))
        assert killed(work, folder, 1, moment, more)
        if read_description(folder)["rounds"] == ROUNDS:  # not extended yet: it can stay short
            again = Path(shutil.copytree(folder, memory_folder / f"back-{moment}"))
            go(again)
            assert outcome(again) == short, moment
            back += 1
        go(folder, rounds=more)
        assert outcome(folder) == expected, moment
    assert 1 < back < len(moments)


def sweep(folder: Path, moment: int) -> None:
    os.setpgid(0, 0)
    with listening(folder.parent, Killer(moment)):
        clean(folder)


def test_cleaning_that_is_killed_at_any_moment_loses_no_result(memory_folder: Path):
    go(memory_folder / "run")
    expected = measured(memory_folder / "run")
    moment = 0
    while True:
        moment += 1
        folder = Path(shutil.copytree(memory_folder / "run", memory_folder / f"at-{moment}"))
        done = not killed(sweep, folder, moment)
        assert measured(folder) == expected, moment
        go(folder)  # it is finished, or can be finished
        assert measured(folder) == expected, moment
        clean(folder)
        assert measured(folder) == expected, moment
        assert Result.load(folder).last_round == ROUNDS
        if done:
            break
    assert moment > 5
