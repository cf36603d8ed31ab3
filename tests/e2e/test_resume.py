"""Runs that are killed: what `consort resume` makes of them is what they would have become."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.cli.command import client_states, consort, measured, server_bytes, write_recipe

from consort.engines.choice import EngineChoice
from consort.experiment.loading import load_recipe
from consort.experiment.preparation import prepare_run, resume_run
from consort.experiment.shipped import find_recipe

FORK = multiprocessing.get_context("fork")
COMMAND = [sys.executable, "-c", "from consort.cli import main; main()"]
WRITING = {"open", "os.rename", "os.remove", "os.truncate", "os.mkdir"}
PATIENCE = 60


def write_stateful(folder: Path, rounds: int) -> Path:
    """A recipe with clients that remember things, some of which are missed in every round."""
    return write_recipe(
        folder,
        ("rounds = 2", f"rounds = {rounds}\nparticipation = 0.7\ndropout = 0.2"),
        ("[algorithms.fedavg]", "[algorithms.scaffold]"),
    )


def outcome(folder: Path) -> tuple[list[str], bytes, dict[str, bytes]]:
    """Everything about a run that must not depend on whether it was killed."""
    return measured(folder), server_bytes(folder), client_states(folder)


def until(condition: Callable[[], bool]) -> None:
    """Waits for something to become true."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.002)


def rounds_done(folder: Path) -> int:
    """The round of the last checkpoint."""
    return max((int(path.stem[-6:]) for path in folder.glob("round-*.ckpt")), default=0)


class Forked:
    """Something that goes on in a process group of its own, and can be killed with it."""

    def __init__(self, work: Callable[[], object]) -> None:
        self.process = FORK.Process(target=self._lead, args=(work,))
        self.process.start()

    @staticmethod
    def _lead(work: Callable[[], object]) -> None:
        os.setpgid(0, 0)
        work()

    def kill(self) -> None:
        until(lambda: not self.process.is_alive() or os.getpgid(self.pid) == self.pid)
        if self.process.is_alive():
            os.killpg(self.pid, signal.SIGKILL)
        self.process.join()

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid


def kill_at(moment: int) -> None:
    """From now on, the group is killed just before it touches the disk for the so-many-th time."""
    left = moment

    def listen(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal left
        if event in WRITING and (event != "open" or "r" not in str(arguments[1])):
            left -= 1
            if left == 0:
                os.killpg(0, signal.SIGKILL)

    sys.addaudithook(listen)


@pytest.mark.parametrize(("name", "workers", "step"), [
    ("ditto", 1, 1), ("scaffold", 1, 3), ("ditto", 2, 2),
])  # fmt: skip
def test_killed_at_any_touch_of_the_disk(name, workers, step, tmp_path: Path):
    """Every file is opened, renamed or removed at some moment: the run is killed at each."""
    recipe = load_recipe(write_stateful(tmp_path, rounds=4))
    prepare_run(recipe, name, 0, tmp_path / "straight").go()
    expected = outcome(tmp_path / "straight")
    moment, killed = 1, 0
    while True:
        folder = tmp_path / f"killed-{moment}"

        def work(folder: Path = folder, moment: int = moment) -> None:
            run = prepare_run(recipe, name, 0, folder, engine=EngineChoice(workers=workers))
            kill_at(moment)
            run.go()

        child = Forked(work)
        child.process.join()
        if child.process.exitcode == 0:
            break
        assert child.process.exitcode == -signal.SIGKILL
        resume_run(folder, workers=1).go()
        assert outcome(folder) == expected, f"killed at moment {moment}"
        moment, killed = moment + step, killed + 1
    assert killed > 5
    assert outcome(folder) == expected


@pytest.mark.parametrize("workers", [1, 2])
def test_killed_again_and_again(workers, tmp_path: Path):
    """The whole command, killed at random moments until it gets through."""
    recipe = write_stateful(tmp_path, rounds=30)
    arguments = ("run", recipe, "--algorithm", "ditto", "--quiet")
    assert consort(*arguments, "--out", tmp_path / "straight").code == 0
    folder = tmp_path / "killed" / "ditto" / "seed-0"
    command = [*arguments, "--out", tmp_path / "killed", "--workers", workers]
    chance = random.Random(workers)
    kills = 0
    while rounds_done(folder) < 30:
        target = min(rounds_done(folder) + chance.randint(2, 10), 30)
        child = Forked(lambda command=command: consort(*command))
        until(lambda target=target: rounds_done(folder) >= target)
        time.sleep(chance.uniform(0, 0.03))
        child.kill()
        kills += 1
        command = ["resume", folder, "--quiet"]
    assert kills >= 2
    assert consort("resume", folder, "--quiet").code == 0
    assert outcome(folder) == outcome(tmp_path / "straight" / "ditto" / "seed-0")


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1)])
def test_the_installed_command_is_killed_and_resumed(before, after, tmp_path: Path):
    """A process as a shell starts it, with other workers afterwards; none of them stays behind."""
    recipe = write_stateful(tmp_path, rounds=60)
    arguments = ["run", str(recipe), "--algorithm", "scaffold", "--quiet"]
    straight, folder = (tmp_path / name / "scaffold" / "seed-0" for name in ("straight", "killed"))
    assert consort(*arguments, "--out", tmp_path / "straight").code == 0
    command = [*COMMAND, *arguments, "--out", tmp_path / "killed", "--workers", str(before)]
    with (tmp_path / "told").open("w") as told:
        process = subprocess.Popen(command, start_new_session=True, stderr=told)
    until(lambda: len(list((folder / "clients").glob("*.states"))) > 1)
    family = children(process.pid)
    assert len(family) == (before if before > 1 else 0)
    process.kill()
    process.wait()
    until(lambda: not any(map(is_running, family)))
    assert "Traceback" not in (tmp_path / "told").read_text()
    assert not (folder / "round-000060.ckpt").exists()
    resumed = consort("resume", folder, "--workers", after)
    assert resumed.code == 0, resumed.err
    assert outcome(folder) == outcome(straight)


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_running(pid: int) -> bool:
    """Whether a process still does something: those that ended may wait for somebody to ask."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize("workers", [1, 2])
def test_interrupted_from_the_keyboard(workers, tmp_path: Path):
    """One sentence, and the same command goes on."""
    recipe = write_recipe(tmp_path, ("rounds = 2", "rounds = 200"))
    arguments = ["run", str(recipe), "--algorithm", "ditto", "--quiet"]
    folder = tmp_path / "stopped" / "ditto" / "seed-0"
    command = [*COMMAND, *arguments, "--out", tmp_path / "stopped", "--workers", str(workers)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    until(lambda: rounds_done(folder) > 1)
    os.killpg(process.pid, signal.SIGINT)
    _, told = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert told == "error: stopped; nothing is lost: repeat the command to continue\n"
    assert not (folder / "round-000200.ckpt").exists()
    assert consort(*arguments, "--out", tmp_path / "stopped").code == 0
    assert consort(*arguments, "--out", tmp_path / "straight").code == 0
    assert outcome(folder) == outcome(tmp_path / "straight" / "ditto" / "seed-0")


def test_a_line_that_was_half_written_is_written_again(tmp_path: Path):
    recipe = load_recipe(write_stateful(tmp_path, rounds=3))
    straight, folder = tmp_path / "straight", tmp_path / "torn"
    for place in (straight, folder):
        prepare_run(recipe, "ditto", 0, place).go()
    (folder / "round-000003.ckpt").unlink()
    with (folder / "history.jsonl").open("a") as history:
        history.write('{"round":4,"metric":"bytes_do')
    resume_run(folder).go()
    assert outcome(folder) == outcome(straight)


def test_resuming_a_finished_run_only_shows_it(tmp_path: Path):
    recipe = write_stateful(tmp_path, rounds=3)
    first = consort("run", recipe, "--algorithm", "ditto", "--out", tmp_path / "out")
    folder = tmp_path / "out" / "ditto" / "seed-0"
    before = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.suffix != ".html"}
    again = consort("resume", folder)
    assert again.code == 0
    assert again.out == first.out
    assert "ditto" in again.out
    assert before == {
        p: p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.suffix != ".html"
    }


def test_a_comparison_that_was_killed_goes_on_with_the_same_command(tmp_path: Path):
    recipe = write_stateful(tmp_path, rounds=6)
    arguments = ("compare", recipe, "--seeds", 2, "--quiet", "--out")
    assert consort(*arguments, tmp_path / "straight").code == 0
    child = Forked(lambda: consort(*arguments, tmp_path / "killed"))
    until((tmp_path / "killed" / "scaffold" / "seed-1" / "round-000002.ckpt").exists)
    child.kill()
    assert not (tmp_path / "killed" / "report.html").exists()
    assert consort(*arguments, tmp_path / "killed").code == 0
    for name in ("scaffold", "ditto"):
        for seed in (0, 1):
            run = Path(name) / f"seed-{seed}"
            assert outcome(tmp_path / "killed" / run) == outcome(tmp_path / "straight" / run)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_second_process_is_refused_as_long_as_the_first_one_runs(workers, tmp_path: Path):
    recipe = write_stateful(tmp_path, rounds=100_000)
    arguments = ("run", recipe, "--workers", workers, "--quiet", "--out", tmp_path / "out")
    child = Forked(lambda: consort(*arguments))
    folder = tmp_path / "out" / "scaffold" / "seed-0"
    until(lambda: rounds_done(folder) > 1)
    second = consort(*arguments)
    child.kill()
    assert second.code == 2
    assert f"{folder} is in use by another process: wait for it, or choose another" in second.err
    assert second.out == ""


def test_the_demo_begins_with_unlike_clients(tmp_path: Path):
    """In full it takes minutes, so it is killed as soon as it has begun."""
    child = Forked(lambda: consort("demo", "--out", tmp_path, "--quiet"))
    until(lambda: any(tmp_path.glob("*/seed-*/run.json")))
    child.kill()
    (path,) = tmp_path.glob("*/seed-*/run.json")
    about = json.loads(path.read_text())
    assert about["title"] == load_recipe(find_recipe("demo")).title
    assert about["workers"] == 2
    assert len({client["train"] for client in about["clients"].values()}) > 3
