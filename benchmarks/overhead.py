"""FedAvg with the 4-layer CNN against a bare PyTorch loop that does the same work.

20 clients with 250 images of 32 x 32 pixels each; one local epoch in batches of 10 or 50; two
rounds per turn.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import torch
from measure import Report, ratio, take_turns, timed
from torch import Tensor, nn
from torch.nn import functional as F

CLIENTS, EXAMPLES, RATE, ROUNDS, REPEATS = 20, 250, 0.01, 2, 3
IDS = [f"client-{number:02d}" for number in range(CLIENTS)]


def images() -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    return [
        (
            torch.randn(EXAMPLES, 3, 32, 32, generator=generator),
            torch.randint(0, 10, (EXAMPLES,), generator=generator),
        )
        for _ in IDS
    ]


def federation(data: list[tuple[Tensor, Tensor]]):  # noqa: ANN201
    from consort import Classification, Examples, Federation, Member, ModelSpec, Splits

    members = {}
    for name, (x, y) in zip(IDS, data, strict=True):
        one = Examples(x[:1], {"classify": y[:1]})
        splits = Splits(Examples(x, {"classify": y}), one, one)
        model = ModelSpec.of({"name": "cnn4"})
        members[name] = Member.of({"classify": Classification(10)}, model, splits)
    return Federation(members)


def bare(batch: int, data: list[tuple[Tensor, Tensor]]) -> dict[str, Tensor]:
    """FedAvg as a plain hand-written loop, with the shuffles and initial weights of Consort.

    Returns:
        The weights after the first round.
    """
    from consort.core.randomness import (
        generator_for,  # the same shuffles, so that weights can be compared
    )

    start = federation(data).roster.shared()
    model = nn.Sequential(
        nn.Conv2d(3, 32, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(1600, 512), nn.ReLU(), nn.Linear(512, 10),
    )  # fmt: skip
    names = dict(zip(model.state_dict(), start, strict=True))
    initial = {own: start[theirs] for own, theirs in names.items()}
    history = [initial]
    for number in range(1, ROUNDS + 1):
        average = {name: torch.zeros_like(tensor) for name, tensor in initial.items()}
        for client, (x, y) in zip(IDS, data, strict=True):
            model.load_state_dict(history[-1])
            optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
            shuffles = generator_for(0, number, client, "train", 0)
            shuffles.manual_seed(shuffles.initial_seed() + 1)
            for index in torch.randperm(EXAMPLES, generator=shuffles).split(batch):
                optimizer.zero_grad()
                F.cross_entropy(model(x[index]), y[index]).backward()
                optimizer.step()
            for name, tensor in model.state_dict().items():
                average[name] += tensor / CLIENTS
        history.append(average)
    return {names[name]: tensor for name, tensor in history[1].items()}


def consort_run(batch: int, workers: int, data: list[tuple[Tensor, Tensor]]) -> dict[str, Tensor]:
    """The same with everything that a run does: workers, checks, traffic, history, checkpoints."""
    from consort import LocalTraining, Run, Schedule
    from consort.algorithms.fedavg import FedAvg
    from consort.run.observer import Observer

    class Probe(Observer):
        def evaluated(self, round, replies) -> None:  # noqa: ANN001, ARG002
            weights.setdefault(round, dict(run.server.model))

    weights: dict[int, dict[str, Tensor]] = {}

    with tempfile.TemporaryDirectory() as folder:
        run = Run(
            federation(data),
            FedAvg(LocalTraining(batch=batch, lr=RATE)),
            Schedule(rounds=ROUNDS),
            folder=Path(folder),
            workers=workers,
            observer=Probe(),
        )
        run.go()
    return weights[1]


def child(contender: str, batch: int) -> None:
    torch.set_num_threads(1)
    data = images()
    weights: dict[str, Tensor] = {}

    def work() -> None:
        if contender == "bare":
            weights.update(bare(batch, data))
        else:
            weights.update(consort_run(batch, int(contender), data))

    measured = timed(work)
    probe = [weights[name].flatten()[:200].tolist() for name in sorted(weights)]
    print(json.dumps(measured | {"probe": probe}))


def main() -> None:
    report = Report()
    for batch, most in ((10, "<=0.90"), (50, "<=0.80")):
        turns = take_turns(
            __file__, [(who, str(batch)) for who in ("bare", "1", "2")], repeats=REPEATS
        )
        loop, one, two = (f"{who} {batch}" for who in ("bare", "1", "2"))
        report.line(
            f"batch {batch}: one process / bare loop, CPU", ratio(turns, one, loop, "cpu"), most
        )
        report.line(
            f"batch {batch}: one process / bare loop, wall", ratio(turns, one, loop, "wall")
        )
        report.line(
            f"batch {batch}: speed-up of two workers over one process, wall",
            ratio(turns, one, two, "wall"),
            ">=1.8",
        )
        report.line(f"batch {batch}: two workers / one process, CPU", ratio(turns, two, one, "cpu"))
        probes = [torch.cat([torch.tensor(p) for p in turns[who][0]["probe"]]) for who in turns]
        gap = max((probe - probes[0]).abs().max().item() for probe in probes)
        report.line(
            f"batch {batch}: largest difference from the bare loop's weights", gap, "<=1e-5"
        )
        same = float((probes[1] - probes[2]).abs().max())
        report.line(f"batch {batch}: difference between one process and two workers", same, "<=0")
    report.finish()


if __name__ == "__main__":
    if "--child" in sys.argv:
        child(sys.argv[2], int(sys.argv[3]))
    else:
        main()
