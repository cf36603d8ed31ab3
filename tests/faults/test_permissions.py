"""What a run writes is for its owner alone, whatever the umask says."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.cli.command import consort, write_recipe

SHARED = {"report.html"}
"""Pages are made to be given away; the folder around them is closed."""


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    paths = [folder, *folder.rglob("*")]
    return {str(path): stat.S_IMODE(path.stat().st_mode) for path in paths}


@pytest.mark.parametrize("workers", [1, 2])
def test_only_the_owner_reads_what_a_run_writes(workers: int, tmp_path: Path):
    recipe = write_recipe(tmp_path)
    out = tmp_path / "runs" / "tiny"
    words = ("run", recipe, "--algorithm", "ditto", "--workers", workers, "--out", out, "--quiet")
    assert consort(*words).code == 0
    found = modes(tmp_path / "runs")
    names = {Path(path).name for path in found}
    assert {"run.json", "history.jsonl", "round-000002.ckpt", "states.jsonl", ".lock"} <= names
    assert {Path(path).suffix for path in found} > {".states", ".ckpt", ".json", ".jsonl"}
    for path, mode in found.items():
        if Path(path).name not in SHARED:
            assert mode == (0o700 if Path(path).is_dir() else 0o600), path


@pytest.mark.parametrize("file", ["model.pt", "model.safetensors"])
def test_only_the_owner_reads_an_exported_model(file: str, tmp_path: Path):
    """It may be the personal model of a client."""
    assert consort("run", write_recipe(tmp_path), "--out", tmp_path / "out", "--quiet").code == 0
    folder = tmp_path / "out" / "fedavg" / "seed-0"
    path = tmp_path / "models" / file
    found = consort("export", folder, "--client", "client-1", "--out", path)
    assert found.code == 0, found.err
    assert set(modes(tmp_path / "models").values()) == {0o700, 0o600}
