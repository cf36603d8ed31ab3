"""Thousands of clients with 20 examples each and a tiny model; a tenth takes part in a round.

Softmax regression with 60 features and 10 classes, five local epochs in batches of ten.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from pathlib import Path

import torch
from measure import Report, peak_memory, ratio, take_turns, timed
from torch import Tensor, nn
from torch.nn import functional as F

EXAMPLES, FEATURES, CLASSES, EPOCHS, BATCH, RATE = 20, 60, 10, 5, 10, 0.1
REPEATS = 3
CLIENT_ROUNDS = 4000  # of every variant in every turn
COHORT = 100  # clients per round when memory is measured


def vectors(population: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(population, EXAMPLES, FEATURES, generator=generator)
    return x, torch.randint(0, CLASSES, (population, EXAMPLES), generator=generator)


def bare(x: Tensor, y: Tensor, rounds: int, share: float) -> dict[str, Tensor]:
    """A plain hand-written loop."""
    model = nn.Linear(FEATURES, CLASSES)
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    for _ in range(rounds):
        cohort = torch.randperm(len(x))[: int(share * len(x))].tolist()
        average = {name: torch.zeros_like(tensor) for name, tensor in weights.items()}
        for client in cohort:
            model.load_state_dict(weights)
            optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
            for _ in range(EPOCHS):
                for index in torch.randperm(EXAMPLES).split(BATCH):
                    optimizer.zero_grad()
                    F.cross_entropy(model(x[client, index]), y[client, index]).backward()
                    optimizer.step()
            for name, tensor in model.state_dict().items():
                average[name] += tensor / len(cohort)
        weights = average
    return weights


def consort_run(x: Tensor, y: Tensor, rounds: int, share: float, cohort_step: bool, folder: Path):  # noqa: ANN201
    from consort import (
        Classification,
        Compute,
        Examples,
        Federation,
        LocalTraining,
        Member,
        ModelSpec,
        Run,
        Schedule,
        Splits,
    )
    from consort.algorithms.fedavg import FedAvg
    from consort.core.messages import Replies

    class Unevaluated(FedAvg):
        """FedAvg without evaluation, as in the bare loop."""

        def evaluate(self, server, clients):  # noqa: ANN001, ANN202, ARG002
            return Replies({})

    spec = ModelSpec.of({"name": "mlp", "hidden": []})
    tasks = {"classify": Classification(CLASSES)}

    def load(number: int) -> Splits:
        examples = Examples(x[number], {"classify": y[number]})
        one = examples.rows(0, 1)
        return Splits(examples, one, one)

    members = {
        f"client-{number:05d}": Member(tasks, spec, x[0, 0], lambda n=number: load(n))
        for number in range(len(x))
    }
    return Run(
        Federation(members, compute=Compute(cohort_step=cohort_step)),
        Unevaluated(LocalTraining(epochs=EPOCHS, batch=BATCH, lr=RATE)),
        Schedule(rounds=rounds, participation=share, evaluate_every=0),
        folder=folder,
    )


def child(contender: str, population: int, share: float, rounds: int) -> None:
    torch.set_num_threads(1)
    x, y = vectors(population)
    weights: dict[str, Tensor] = {}
    with tempfile.TemporaryDirectory() as folder:
        if contender == "bare":
            bare(x, y, 1, 10 / population)
            before = peak_memory()
            measured = timed(lambda: bare(x, y, rounds, share))
        else:
            consort_run(x, y, 1, 10 / population, contender == "cohort", Path(folder) / "warm").go()
            run = consort_run(x, y, rounds, share, contender == "cohort", Path(folder) / "run")
            before = peak_memory()
            measured = timed(run.go)
            weights = dict(run.server.model)
    flat = [number for _, t in sorted(weights.items()) for number in t.flatten().tolist()]
    print(json.dumps(measured | {"weights": flat, "growth": peak_memory() - before}))


def main() -> None:
    report = Report()
    for population in (1_000, 10_000):
        rounds = max(1, CLIENT_ROUNDS * 10 // population)
        settings = (str(population), "0.1", str(rounds))
        turns = take_turns(
            __file__, [(who, *settings) for who in ("bare", "loop", "cohort")], REPEATS
        )
        loop, plain, cohort = (" ".join((who, *settings)) for who in ("bare", "loop", "cohort"))
        micro = statistics.median(t["cpu"] for t in turns[loop]) / (rounds * population / 10) * 1e6
        report.line(f"{population:,} clients: bare loop, µs of CPU per client and round", micro)
        report.line(
            f"{population:,} clients: plain loop / bare loop, CPU",
            ratio(turns, plain, loop, "cpu"),
            "<=0.75",
        )
        report.line(
            f"{population:,} clients: cohort step / bare loop, CPU",
            ratio(turns, cohort, loop, "cpu"),
            "<=0.15",
        )
        mine, batched = (torch.tensor(turns[who][0]["weights"]) for who in (plain, cohort))
        gap = float((mine - batched).abs().max())
        report.line(
            f"{population:,} clients: weights, cohort step against plain loop", gap, "<=1e-6"
        )
    memory(report)
    report.finish()


def memory(report: Report) -> None:
    """The memory of the same cohort, drawn from ten times as many clients."""
    few, many = (
        take_turns(__file__, [("loop", str(n), str(COHORT / n), "10")], 3) for n in (1_000, 10_000)
    )
    growth = [
        statistics.median(turn["growth"] for turns in run.values() for turn in turns)
        for run in (few, many)
    ]
    report.line("10 rounds of 100 among 1,000 clients: memory growth, MiB", growth[0])
    report.line("10 rounds of 100 among 10,000 clients: memory growth, MiB", growth[1])
    report.line("MiB per 1,000 clients outside the cohort", (growth[1] - growth[0]) / 9, "<=2")


if __name__ == "__main__":
    if "--child" in sys.argv:
        child(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5]))
    else:
        main()
