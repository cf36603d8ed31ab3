"""The cost of an exchange on each engine: the same bytes to every client and back.

Three clients with 1 kB to 100 MB each, and many clients with a few numbers each. Two processes
with one thread each. The start of the engine is measured separately.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from measure import Report, take_turns

from consort import (
    Algorithm,
    Classification,
    Client,
    Federation,
    LocalTraining,
    Member,
    ModelSpec,
    on_client,
)
from consort.core.engine import Engine
from consort.core.messages import Call, Payload
from consort.data.examples import Examples, Splits
from consort.engines.choice import EngineChoice, EngineName, Origin
from consort.engines.host import ClientHost
from consort.engines.states import StateStore

SIZES = {"1 kB": 10**3, "1 MB": 10**6, "10 MB": 10**7, "100 MB": 10**8}
FEW, MANY = 3, (100, 1_000)
REPEATS = 3
TARGETS = {"workers": "<=2", "ray": "<=2"}
"""Milliseconds per call of a client with almost nothing to compute."""

ENGINES: dict[str, Callable[[ClientHost, Origin], Engine]] = {
    "embedded": EngineChoice(EngineName.embedded).start,
    "workers": EngineChoice(EngineName.workers, 2).start,
    "ray": EngineChoice(EngineName.ray, 2).start,
}
"""An engine that is added here is measured with the others."""
LARGEST_OF_FLOWER = "10 MB"
"""Up to this size an exchange between institutions should take at most four seconds."""


@dataclass(frozen=True)
class Echo(Algorithm[int]):
    """Sends back what it received."""

    local: LocalTraining = LocalTraining()  # noqa: RUF009

    @on_client
    def echo(self, client: Client, value: torch.Tensor) -> Payload:  # noqa: ARG002
        return {"value": value}


def rebuild(clients: int) -> tuple[Federation, Algorithm[Any]]:
    examples = Examples(torch.zeros(1, 4), {"classify": torch.zeros(1, dtype=torch.long)})
    spec = ModelSpec.of({"name": "mlp", "hidden": []})
    member = Member.of({"classify": Classification(2)}, spec, Splits(examples, examples, examples))
    return Federation({f"c{number:04d}": member for number in range(clients)}), Echo()


def exchange(engine: Engine, ids: tuple[str, ...], step: int, value: torch.Tensor) -> float:
    """The seconds until all clients have sent the value back."""
    calls = [Call(client, "echo", 1, step, 0, {"value": value}) for client in ids]
    start = time.perf_counter()
    for reply in engine.deliver(calls):
        assert reply.error is None, reply.error
        assert reply.content["value"].shape == value.shape
    return time.perf_counter() - start


def child(name: str) -> None:
    """Measures every exchange three times and prints the medians."""
    torch.set_num_threads(1)
    arguments = {"clients": max(MANY)}
    federation, algorithm = rebuild(**arguments)
    origin = Origin(f"{Path(__file__).resolve()}:rebuild", arguments)
    loads = {size: (FEW, number) for size, number in SIZES.items()}
    loads |= {f"{count:,} clients": (count, 100) for count in MANY}
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        host = ClientHost(federation, algorithm, 0, 1, StateStore(Path(folder)))
        engine = ENGINES[name](host, origin)
        exchange(engine, federation.client_ids, 0, torch.zeros(1))
        seconds = {"start": time.perf_counter() - start}
        for what, (count, size) in loads.items():
            value, ids = torch.zeros(size, dtype=torch.uint8), federation.client_ids[:count]
            seconds[what] = statistics.median(exchange(engine, ids, 0, value) for _ in range(3))
        engine.close()
    print(json.dumps(seconds))


def child_flower() -> None:
    """The same between three institutions on this machine, with TLS, keys and SuperNodes."""
    from consort.deployment.credentials import ClientCredentials, ServerCredentials
    from consort.deployment.link.programs import free_port
    from consort.deployment.stack import FlowerStack
    from consort.deployment.study import Study
    from consort.engines.flower import Flower, Ledger
    from consort.experiment.loading import load_recipe

    torch.set_num_threads(1)
    names, port = tuple(f"c{number}" for number in range(FEW)), free_port()
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        folder = Path(place)
        recipe = folder / "study.toml"
        recipe.write_text(
            f'clients = {FEW}\nmodel = {{name = "mlp", hidden = []}}\n'
            f'[algorithms.echo]\nkind = "{Path(__file__).resolve()}:Echo"\n'
        )
        server = ServerCredentials.create(folder / "server", ["localhost"], 1)
        start = time.perf_counter()
        for name in names:
            made = ClientCredentials.create(folder / name, name)
            made.certificate.write_bytes(server.admit(made.request, 1).read_bytes())
            (folder / name / "client.toml").write_text(
                '[data]\nname = "synthetic_vectors"\nexamples = 50\n'
            )
            words = f"client --server localhost:{port} --name {name} --recipe {recipe} "
            words += f"--credentials {folder / name} --data {folder / name}"
            program = "from consort.cli import main; main()"
            log = stack.enter_context((folder / f"{name}.log").open("wb"))
            client = subprocess.Popen(
                [sys.executable, "-c", program, *words.split()],
                stdout=log,
                stderr=log,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
            )
            stack.callback(client.wait)
            stack.callback(client.terminate)
        flower = stack.enter_context(
            FlowerStack(f"localhost:{port}", server, server.admitted(), folder / "flower")
        )
        study = Study.of(load_recipe(recipe), "echo", 0).table
        engine = Flower(flower.grid, flower.nodes, study, Ledger.open(folder / "ledger"), 600)
        exchange(engine, names, 0, torch.zeros(1))
        seconds = {"start": time.perf_counter() - start}
        for what, size in SIZES.items():
            value = torch.zeros(size, dtype=torch.uint8)
            seconds[what] = statistics.median(exchange(engine, names, 0, value) for _ in range(3))
    print(json.dumps(seconds))


def installed(report: Report) -> list[str]:
    """The engines that can be measured here; a missing one counts as a missed target."""
    needs = {"ray": ["ray"], "flower": ["flwr", "cryptography", "httpx", "uvicorn"]}
    found = []
    for name in [*ENGINES, "flower"]:
        if all(find_spec(package) for package in needs.get(name, [])):
            found.append(name)
        else:
            report.miss(f"{name} is not installed: pip install 'fedconsort[{name}]'")
    return found


def main() -> None:
    report = Report()
    every = installed(report)
    turns = take_turns(__file__, [(name,) for name in every], REPEATS)
    found = {
        name: {what: statistics.median(turn[what] for turn in measured) for what in measured[0]}
        for name, measured in turns.items()
    }
    for name in every:
        report.line(f"{name}: start and first exchange, s", found[name]["start"])
    for size, count in SIZES.items():
        for name in every:
            bound = "<=4" if name == "flower" and count <= SIZES[LARGEST_OF_FLOWER] else ""
            report.line(f"{size} to {FEW} clients and back, {name}, s", found[name][size], bound)
    for count in MANY:
        for name in [name for name in every if name in ENGINES]:
            milliseconds = found[name][f"{count:,} clients"] / count * 1e3
            text = f"{count:,} tiny clients, {name}, ms per call"
            report.line(text, milliseconds, TARGETS.get(name, ""))
    report.finish()


if __name__ == "__main__":
    if "--child" in sys.argv:
        child_flower() if sys.argv[2] == "flower" else child(sys.argv[2])
    else:
        main()
