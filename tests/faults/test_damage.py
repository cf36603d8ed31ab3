"""A damaged, missing or older file is named, or it does not matter: no number differs."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.faults.runs import go, outcome

from consort.errors import ConsortError
from consort.run.observer import Observer


class PowerCut(BaseException):
    """Nothing gets the chance to tidy up."""


@dataclass
class StopsBefore(Observer):
    """Ends the run when a round begins."""

    last: int

    def round_started(self, round: int, calls: int) -> None:
        if round == self.last:
            raise PowerCut


@pytest.fixture
def stopped(memory_folder: Path) -> Callable[[int], Path]:
    """Folders of the same run, stopped before one of its rounds."""

    def stop(before: int) -> Path:
        folder = memory_folder / f"before-{before}"
        if not folder.exists():
            with pytest.raises(PowerCut):
                go(folder, observer=StopsBefore(before))
        return folder

    return stop


def flipped(path: Path, part: int) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) * part // 7] ^= 1 << part
    path.write_bytes(content)


def cut(path: Path, part: int) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size * part // 7])


def gone(path: Path, part: int) -> None:
    path.unlink()


def files_of(folder: Path) -> list[str]:
    paths = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return sorted(str(path.relative_to(folder)) for path in paths)


def refused(folder: Path) -> str:
    """Goes on with a run; returns what stands in the way."""
    try:
        go(folder)
    except ConsortError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(("damage", "parts"), [(flipped, 6), (cut, 2), (gone, 1)])
def test_damage_is_named_or_does_not_matter(damage, parts, stopped, memory_folder: Path):
    go(memory_folder / "straight")
    expected = outcome(memory_folder / "straight")
    sound, noticed = stopped(3), set()
    for name in files_of(sound):
        for part in range(1, parts + 1):
            folder = Path(shutil.copytree(sound, memory_folder / f"{damage.__name__}-{part}"))
            damage(folder / name, part)
            if refusal := refused(folder):
                noticed.add(name)
                assert str(folder / name) in refusal
                assert "\n" not in refusal
            else:
                assert outcome(folder) == expected, name
            shutil.rmtree(folder)
    assert {"run.json", "history.jsonl", "partition.json", "clients/states.jsonl"} <= noticed
    assert ("round-000002.ckpt" in noticed) is (damage is not gone)  # there is the one before it
    assert any(name.endswith(".states") for name in noticed)


def test_an_older_file_is_named_or_does_not_matter(stopped, memory_folder: Path):
    """As after somebody has copied a file back from a backup of the round before."""
    go(memory_folder / "straight")
    expected = outcome(memory_folder / "straight")
    old, sound, noticed = stopped(2), stopped(3), set()
    for name in set(files_of(old)) & set(files_of(sound)):
        folder = Path(shutil.copytree(sound, memory_folder / "older"))
        shutil.copy(old / name, folder / name)
        if refusal := refused(folder):
            noticed.add(name)
            assert str(folder / name) in refusal
        else:
            assert outcome(folder) == expected, name
        shutil.rmtree(folder)
    assert {"history.jsonl", "clients/states.jsonl"} <= noticed
