"""After a power cut at any moment, a run goes on to the numbers it would have had."""

from __future__ import annotations

import hashlib
import os
import random
from pathlib import Path

import pytest
from tests.faults.power_cut import Recorder, disks, put
from tests.faults.runs import go, outcome
from tests.faults.system_calls import listening

MOMENTS = int(os.environ.get("CONSORT_POWER_CUTS", "60"))
"""How many of the different contents of the disk are tried."""


@pytest.mark.parametrize("workers", [1, 2])
def test_a_power_cut_at_any_moment_changes_no_number(workers, memory_folder: Path):
    folder = memory_folder / "recorded" / "out" / "run"
    folder.parents[1].mkdir()
    with listening(memory_folder / "recorded", Recorder(memory_folder / "log", folder.parents[1])):
        go(folder, workers)
    expected = outcome(folder)
    chance = random.Random(workers)
    found = {}
    for number, disk in enumerate(disks(memory_folder / "log")):
        for what, content in disk.after_a_power_cut(chance):
            key = hashlib.sha256(repr(sorted(content.items())).encode()).hexdigest()
            found.setdefault(key, (f"operation {number}, {what}", content))
    cases = chance.sample(list(found.values()), min(MOMENTS, len(found)))
    for number, (what, content) in enumerate(cases):
        place = memory_folder / f"after-{number}"
        put(content, place)
        go(place / "out" / "run")
        assert outcome(place / "out" / "run") == expected, what
