"""Runs algorithms on Ray and in this process, and prints where they differ: {name: what}.

A process of its own, so that all of them share one Ray and no test is left with its threads.
"""

from __future__ import annotations

import json
import sys
import tempfile
import traceback
from functools import partial
from pathlib import Path
from typing import Any

from tests.contract.helpers import ROUGH, Rough, assert_same_outcome, finish, make, run_of
from tests.helpers import tiny_federation

from consort.core.algorithm import Algorithm
from consort.core.plugins import Registered, entries
from consort.engines.choice import EngineChoice, EngineName, Origin
from consort.federation.federation import Federation
from consort.protection.secure.settings import Secure
from consort.run.run import Run
from consort.training.compute import Compute

CLIENTS = 3
SECURE = " with secure aggregation"
COUNTING = " with counted operations"
RAY = EngineChoice(EngineName.ray, 2)


def federation(name: str) -> Federation:
    """Clients whose BatchNorm statistics are their own, so that all of them remember something."""
    entries("models")["rough"] = Registered(f"{Rough.__module__}:{Rough.__name__}")
    compute = Compute(count_flops=name.endswith(COUNTING))
    members = tiny_federation(CLIENTS, model=ROUGH, batchnorm="local", compute=compute)
    return members.protected(*([Secure()] if name.endswith(SECURE) else []))


def algorithm_in(name: str) -> str:
    """The algorithm's own name, without what it is run with."""
    return name.partition(" with ")[0]


def rebuild(name: str) -> tuple[Federation, Algorithm[Any]]:
    """The same on the far side."""
    algorithm = make(algorithm_in(name), CLIENTS)
    members = federation(name)
    return members.pooled() if algorithm.pools_data else members, algorithm


def compare(name: str, folder: Path) -> None:
    """Straight on Ray, and begun on Ray and ended here, are as if all had been here."""
    start = partial(RAY.start, origin=Origin(f"{__name__}:rebuild", {"name": name}))

    def run(place: str, **settings: Any) -> Run:
        return run_of(algorithm_in(name), folder / place, federation(name), **settings)

    alone = finish(run("alone"))
    assert len(alone.rows) > 0
    assert any(row.metric == "flops" for row in alone.rows) == name.endswith(COUNTING)
    assert_same_outcome(finish(run("ray", engine=start)), alone)
    run("both", engine=start).go()
    (folder / "both" / "round-000003.ckpt").unlink()
    assert_same_outcome(finish(run("both")), alone)


def difference(name: str) -> str:
    """What differs, or nothing."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            compare(name, Path(folder))
        except Exception:
            return traceback.format_exc()
    return ""


if __name__ == "__main__":
    from tests.contract.ray_runs import difference  # so that the far side finds `rebuild` by name

    print(json.dumps({name: difference(name) for name in sys.argv[1:]}))
