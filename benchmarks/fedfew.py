"""The cost of a round of FedFew compared with FedAvg, and the memory of its server.

A small version of the published federation: 20 clients with 250 images of 32 x 32 pixels and the
4-layer CNN.
"""

from __future__ import annotations

import json
import sys

import torch
from measure import Report, peak_memory, ratio, take_turns, timed

CLIENTS, IMAGES, BATCH, ROUNDS, REPEATS = 20, 250, 50, 2, 3
ALGORITHMS = {
    "fedavg": {},
    "fedfew": {"models": 3},
    "fedfew_plus": {"models": 3},
    "fedfew_few_clients": {"models": 3},
}


def federation(clients: int):  # noqa: ANN201
    from consort import Classification, Examples, Federation, Member, ModelSpec, Splits

    generator = torch.Generator().manual_seed(0)
    spec = ModelSpec.of({"name": "cnn4"})

    def member() -> Member:
        x = torch.rand(IMAGES, 3, 32, 32, generator=generator)
        y = torch.randint(0, 10, (IMAGES,), generator=generator)
        train = Examples(x, {"classify": y})
        return Member.of({"classify": Classification(10)}, spec, Splits(train, train, train))

    return Federation({f"c{number:02d}": member() for number in range(clients)})


def child(name: str) -> None:
    from consort import LocalTraining, Replies, Run, Schedule
    from consort.algorithms.registry import find_algorithm

    torch.set_num_threads(1)
    kind = find_algorithm(name.removesuffix("_few_clients"))
    # Only the rounds are measured.
    kind.evaluate = lambda *_: Replies({})
    algorithm = kind(LocalTraining(batch=BATCH, lr=0.05), **ALGORITHMS[name])
    few = name.endswith("_few_clients")
    members = federation(4 if few else CLIENTS)
    run = Run(members, algorithm, Schedule(ROUNDS, evaluate_every=0))
    for client in members.client_ids:
        members.data(client)  # the clients' data are not the server's memory
    before = peak_memory()
    measured = timed(run.go)
    sizes = [row.value for row in run.history if row.metric in ("bytes_up", "bytes_down")]
    print(json.dumps(measured | {"bytes": sum(sizes), "growth": peak_memory() - before}))


def main() -> None:
    report = Report()
    turns = take_turns(__file__, [(name,) for name in ALGORITHMS], REPEATS)
    for name, target in (("fedfew", "<=3.1"), ("fedfew_plus", "<=1.5")):
        report.line(
            f"{name} / fedavg, CPU time of a round", ratio(turns, name, "fedavg", "cpu"), target
        )
        report.line(
            f"{name} / fedavg, bytes of a round", ratio(turns, name, "fedavg", "bytes"), target
        )
    few, many = (turns[name][0]["growth"] for name in ("fedfew_few_clients", "fedfew"))
    model = 878_538 * 4 / 2**20
    report.line("fedfew with 4 clients: memory growth, MiB", few)
    report.line(f"fedfew with {CLIENTS} clients: memory growth, MiB", many)
    # To keep all replies would take three models for each of the 16 additional clients.
    report.line("additional memory of more clients, in replies", (many - few) / (3 * model), "<=2")
    report.finish()


if __name__ == "__main__":
    child(sys.argv[2]) if "--child" in sys.argv else main()
