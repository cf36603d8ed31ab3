"""What goes wrong on a Ray cluster, done on purpose; each run must end with the same numbers.

    python -m tests.faults.ray_faults worker     kill -9 of an actor in the middle of a call
    python -m tests.faults.ray_faults node       kill -9 of a node in the middle of a call
    python -m tests.faults.ray_faults server     kill -9 of the run itself, which is then resumed

Prints one line and exits with 0, or with 1 and what differs. Each wait has an end.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.faults.fragile import Fragile
from tests.unit.cli.command import client_states, measured

from consort.core import files
from consort.core.wire import encode
from consort.engines.choice import EngineChoice, EngineName
from consort.experiment.loading import recipe_of
from consort.experiment.preparation import prepare_run
from consort.experiment.recipe import Recipe

PATIENCE = 120.0
NAME = "fragile"
ON_RAY = EngineChoice(EngineName.ray, 2)


def recipe(folder: Path) -> Recipe:
    """Four clients that remember a model of their own; one of them waits in round 2."""
    kind = {"kind": f"{Path(__file__).with_name('fragile.py')}:Fragile", "mark": str(mark(folder))}
    return recipe_of(
        {
            "clients": 4,
            "data": {"name": "synthetic_vectors", "classes": 4, "examples": 120, "features": 6},
            "model": {"name": "mlp", "hidden": [8]},
            "run": {"rounds": 3},
            "local": {"lr": 0.1},
            "algorithms": {NAME: kind},
        },
        "fault",
    )


def mark(folder: Path) -> Path:
    """Where the client that waits says so."""
    return folder / "mark"


def outcome(run: Path) -> tuple[list[str], bytes, dict[str, bytes]]:
    """Everything about a run that must not depend on what was done to it."""
    state = Fragile.state_type()
    last = files.load(max(run.glob("round-*.ckpt")), {state.__name__: state})
    return measured(run), encode(last["server"]), client_states(run)


def undisturbed(folder: Path) -> None:
    """The same run in this process, with nobody waiting for anything."""
    mark(folder).touch()
    prepare_run(recipe(folder), NAME, 0, folder / "undisturbed").go()
    mark(folder).unlink()


def victims(folder: Path) -> tuple[int, int]:
    """Waits for the client; the numbers of its process and of the node's."""
    until(mark(folder).exists)
    process, node = map(int, mark(folder).read_text().split())
    return process, node


def until(condition: Callable[[], bool], seconds: float = PATIENCE) -> None:
    """Waits for something to become true."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError("waited in vain")
        time.sleep(0.02)


def gone(process: int) -> bool:
    """Whether a process has ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def killed_during(folder: Path, which: int) -> None:
    """The run on Ray, while the client's process (0) or its node (1) is killed."""
    killed: list[int] = []

    def kill() -> None:
        victim = victims(folder)[which]
        os.kill(victim, signal.SIGKILL)
        killed.append(victim)

    killer = threading.Thread(target=kill)
    killer.start()
    prepare_run(recipe(folder), NAME, 0, folder / "disturbed", engine=ON_RAY).go()
    killer.join()
    assert killed, "nothing was killed"
    assert gone(killed[0])


def worker(folder: Path) -> None:
    """An actor is killed; another one takes its place."""
    killed_during(folder, 0)


def node(folder: Path) -> None:
    """One of two nodes is killed; there is no room for another actor, so one does all the work."""
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    try:
        for _ in range(2):
            cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()
        ray.init(cluster.address, log_to_driver=False)
        killed_during(folder, 1)
    finally:
        ray.shutdown()
        cluster.shutdown()


def server(folder: Path) -> None:
    """The run itself is killed, and Ray ends with it; round 2 is run again, without Ray."""
    begin = f"import sys; from {__name__} import *; begin(Path(sys.argv[1]))"
    first = subprocess.Popen([sys.executable, "-c", begin, str(folder)])
    actor, raylet = victims(folder)
    first.kill()
    first.wait()
    until(lambda: gone(actor) and gone(raylet))
    command = [sys.executable, "-c", "from consort.cli import main; main()", "resume"]
    here = ["--engine", "embedded", "--workers", "1", "--quiet"]
    subprocess.run([*command, str(folder / "disturbed"), *here], check=True, timeout=PATIENCE)


def begin(folder: Path) -> None:
    """A run that will not end."""
    prepare_run(recipe(folder), NAME, 0, folder / "disturbed", engine=ON_RAY).go()


FAULTS = {"worker": worker, "node": node, "server": server}


def main(name: str) -> None:
    """Does the worst, and compares."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        undisturbed(folder)
        start = time.monotonic()
        FAULTS[name](folder)
        seconds = time.monotonic() - start
        found, expected = outcome(folder / "disturbed"), outcome(folder / "undisturbed")
    for what, one, other in zip(("rows", "server", "clients"), found, expected, strict=True):
        if one != other:
            sys.exit(f"{name}: the {what} differ")
    print(f"{name}: {(FAULTS[name].__doc__ or '').strip()} Same numbers after {seconds:.1f} s.")


if __name__ == "__main__":
    from tests.faults.ray_faults import main  # so that others find this module by its name

    main(sys.argv[1])
