"""Tuning on Ray gives the numbers of tuning in processes, and goes on with what these began."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.cli.command import RECIPE, consort, measured
from tests.unit.experiment.test_tuning import SWEEP

ROOT = Path(__file__).parents[3]


def test_other_engines_are_refused(tmp_path):
    (tmp_path / "tiny.toml").write_text(RECIPE + SWEEP)
    shown = consort("tune", tmp_path / "tiny.toml", "--engine", "workers")
    assert (shown.code, "leave out --engine, or write --engine ray" in shown.error) == (2, True)
    shown = consort("tune", tmp_path / "tiny.toml", "--address", "auto")
    assert (shown.code, "add --engine ray" in shown.error) == (2, True)


def test_a_search_goes_on_with_ray(tmp_path):
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'fedconsort[ray]'")
    recipe, out, kept = tmp_path / "tiny.toml", tmp_path / "out", tmp_path / "kept"
    recipe.write_text(RECIPE + SWEEP)
    assert consort("tune", recipe, "--jobs", "2", "--out", out, "--quiet").code == 0
    shutil.copytree(out, kept)
    shutil.rmtree(out / "final")
    trial = next((out / "search" / "ditto").iterdir())
    (trial / "seed-5" / "round-000002.ckpt").unlink()
    shutil.rmtree(trial / "seed-6")
    untouched = next((out / "search" / "fedavg").iterdir()) / "seed-5" / "history.jsonl"
    before = untouched.stat().st_mtime_ns
    code = "from consort.cli import main; main()"
    child = subprocess.run(
        [sys.executable, "-c", code, "tune", recipe, "--jobs", "2", "--engine", "ray",
         "--out", out],
        capture_output=True, text=True, timeout=120, cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])},
    )  # fmt: skip
    assert child.returncode == 0, child.stderr
    assert untouched.stat().st_mtime_ns == before
    runs = sorted(path.parent.relative_to(kept) for path in kept.rglob("run.json"))
    assert len(runs) == 2 * 2 * 2 + 2
    for run in runs:
        assert measured(out / run) == measured(kept / run), run
    assert (out / "tuned.json").read_bytes() == (kept / "tuned.json").read_bytes()
