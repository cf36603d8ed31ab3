"""Every algorithm gives the same bits on Ray as in one process (and so as with workers)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.contract.helpers import NAMES

pytest.importorskip("ray", reason="Ray is not installed: pip install 'fedconsort[ray]'")


def test_every_algorithm_agrees_with_one_process():
    """One test for all, because all share one Ray."""
    libraries = find_spec("Crypto") and find_spec("cryptography")
    secure = ["fedavg with secure aggregation"] if libraries else []
    names = [*NAMES, "fedavg with counted operations", *secure]
    command = [sys.executable, "-m", "tests.contract.ray_runs", *names]
    root = Path(__file__).parents[2]
    paths = os.pathsep.join([str(root), *filter(None, sys.path)])
    child = subprocess.run(
        command, capture_output=True, text=True, timeout=300, env=os.environ | {"PYTHONPATH": paths}
    )
    assert child.returncode == 0, child.stderr
    found = json.loads(child.stdout)
    assert list(found) == names
    assert {name: what for name, what in found.items() if what} == {}
