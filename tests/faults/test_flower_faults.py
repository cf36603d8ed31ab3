"""What goes wrong among institutions changes no number; minutes of it, so only if asked for."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from tests.institutions import ROOT, environment

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedconsort[flower]'")
pytestmark = pytest.mark.skipif(
    not os.environ.get("CONSORT_FAULTS"), reason="minutes for each fault: set CONSORT_FAULTS=1"
)

from tests.faults.flower_faults import FAULTS


@pytest.mark.parametrize("fault", FAULTS)
def test_a_run_ends_with_the_same_numbers_after(fault):
    if fault in ("disk", "network") and os.geteuid():
        pytest.skip("needs root")
    child = subprocess.run(
        [sys.executable, "-m", "tests.faults.flower_faults", fault],
        capture_output=True,
        text=True,
        timeout=1800,
        env=environment(),
        cwd=ROOT,
    )
    assert child.returncode == 0, child.stderr
    assert "Same numbers" in child.stdout
