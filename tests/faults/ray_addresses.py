"""A run on a Ray cluster that is there already, reached by every kind of address.

    python -m tests.faults.ray_addresses

Starts a cluster with a token of its own on this machine, gives `consort run` for each address, and
compares the numbers with those of a run without Ray. Prints a line for each.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.institutions import environment, free_port, until
from tests.unit.cli.command import client_states, measured, server_bytes, write_recipe

PATIENCE = 300.0


@contextmanager
def cluster(folder: Path) -> Iterator[tuple[list[str], dict[str, str]]]:
    """A head with two cores; its addresses, and the environment in which they can be reached."""
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    shell = environment() | {"RAY_USAGE_STATS_ENABLED": "0"} | token
    port, door = free_port(), free_port()
    words = (
        f"start --head --block --port {port} --ray-client-server-port {door} --num-cpus 2 "
        f"--object-store-memory {80 << 20} --include-dashboard=false --temp-dir {folder / 'ray'}"
    )
    command = [sys.executable, "-m", "ray.scripts.scripts", *words.split()]
    log = folder / "ray.log"
    with log.open("wb") as output:
        head = subprocess.Popen(command, stdout=output, stderr=output, env=shell)
    try:
        until(lambda: "Ray runtime started" in log.read_text(), PATIENCE, "Ray to start")
        address = (folder / "ray" / "ray_current_cluster").read_text().strip()
        yield [address, "auto", f"ray://127.0.0.1:{door}"], shell | {"RAY_ADDRESS": address}
    finally:
        head.send_signal(signal.SIGTERM)  # with --block it ends what it has started, and only that
        head.wait(60)


def run(recipe: Path, out: Path, shell: Mapping[str, str], *more: str) -> tuple[object, ...]:
    """One `consort run`; everything about it that must not depend on the engine."""
    command = [sys.executable, "-c", "from consort.cli import main; main()", "run", str(recipe)]
    words = ["--algorithm", "ditto", "--out", str(out), "--quiet", *more]
    subprocess.run([*command, *words], check=True, timeout=PATIENCE, env=dict(shell))
    folder = out / "ditto" / "seed-0"
    return measured(folder), server_bytes(folder), client_states(folder)


def main() -> None:
    """Every address in turn."""
    with tempfile.TemporaryDirectory(prefix="ray-") as place:
        folder = Path(place)
        recipe = write_recipe(folder)
        near = run(recipe, folder / "near", os.environ | environment())
        with cluster(folder) as (addresses, shell):
            for number, address in enumerate(addresses):
                start = time.monotonic()
                ray = ("--engine", "ray", "--workers", "2", "--address", address)
                if run(recipe, folder / str(number), shell, *ray) != near:
                    sys.exit(f"{address}: the numbers differ")
                seconds = time.monotonic() - start
                print(f"{address}: same numbers after {seconds:.1f} s.", flush=True)


if __name__ == "__main__":
    main()
