"""Killed actors, nodes and servers change no number of a run on Ray."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'fedconsort[ray]'")


@pytest.mark.parametrize("fault", ["worker", "node", "server"])
def test_a_run_ends_with_the_same_numbers_after(fault):
    root = Path(__file__).parents[2]
    paths = os.pathsep.join([str(root), *filter(None, sys.path)])
    child = subprocess.run(
        [sys.executable, "-m", "tests.faults.ray_faults", fault],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"PYTHONPATH": paths},
    )
    assert child.returncode == 0, child.stderr
    assert "Same numbers" in child.stdout
    if fault != "server":
        assert "client client-1 is asked again: its Ray actor died" in child.stderr
