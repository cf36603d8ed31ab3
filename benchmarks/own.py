"""A user's own network and data set against the same written for Consort; observers; tuning.

Rounds of FedAvg with the 4-layer CNN and with a small fully connected network; variants alternate
in one process, and the fewest CPU seconds of each are compared. Observers: the share of a run that
is spent in them. Tuning: wall-clock seconds of one search, one run or two at the same time.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any

import torch
from measure import Report, quickest, timed
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import Dataset

from consort import Classification, Federation, LocalTraining, Member, ModelSpec, Run, Schedule
from consort.algorithms.fedavg import FedAvg
from consort.run.json_lines import JsonLines
from consort.run.observer import Observer, Observers
from consort.run.round_lines import RoundLines

CLIENTS, EXAMPLES, GOES = 4, 200, 15
NETWORK, DATA, OBSERVERS, TUNING = "<=1.03", "<=1.1", "<=0.01", ">=1.8"
SEARCH = """
clients = 4
seeds = [3, 4]
[data]
name = "synthetic_images"
[model]
name = "cnn4"
[run]
rounds = 8
evaluate_every = 0
[algorithms.fedavg]
[sweep]
seeds = [1, 2]
[sweep.space]
local.lr = [0.01, 0.02, 0.05, 0.1]
"""


class PlainCnn(nn.Module):
    """The 4-layer CNN as one writes it without Consort: logits out of the last layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 32, 5), nn.Conv2d(32, 64, 5)
        self.linear, self.fc = nn.Linear(1600, 512), nn.Linear(512, 10)

    def forward(self, images: Tensor) -> Tensor:
        maps = F.relu(F.max_pool2d(self.conv1(images), 2))
        maps = F.relu(F.max_pool2d(self.conv2(maps), 2))
        return self.fc(F.relu(self.linear(maps.flatten(1))))


class PlainMlp(nn.Module):
    """One hidden layer."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.fc = nn.Linear(32, 64), nn.Linear(64, 10)

    def forward(self, vectors: Tensor) -> Tensor:
        return self.fc(self.hidden(vectors).relu())


class Items(Dataset):
    """Cheap items: rows of tensors."""

    def __init__(self, inputs: Tensor, labels: Tensor) -> None:
        self.inputs, self.labels = inputs, labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, place: int) -> tuple[Tensor, Tensor]:
        return self.inputs[place], self.labels[place]


def members(model: object, shape: tuple[int, ...], items: bool = False) -> Federation:
    """Clients with random data that are loaded already."""
    generator = torch.Generator().manual_seed(0)
    found = {}
    for number in range(CLIENTS):
        inputs = torch.randn(EXAMPLES, *shape, generator=generator)
        labels = torch.randint(0, 10, (EXAMPLES,), generator=generator)
        data = Items(inputs, labels) if items else (inputs, labels)
        found[f"c{number}"] = Member.of(Classification(10), model, data)
    return Federation(found)


def rounds(
    model: object, shape: tuple[int, ...], epochs: int, items: bool = False
) -> Callable[[], Any]:
    """Makes a function that trains for one round."""
    federation = members(model, shape, items)
    algorithm = FedAvg(LocalTraining(epochs=epochs, batch=10))
    return lambda: Run(federation, algorithm, Schedule(rounds=1)).go()


class Timed(Observer):
    """Tells another observer everything, and counts the seconds that it takes."""

    def __init__(self, observer: Observer) -> None:
        self.observer, self.seconds = observer, 0.0


def _timing(event: str) -> Callable[..., None]:
    def tell(self: Timed, *arguments: Any) -> None:
        start = time.perf_counter()
        getattr(self.observer, event)(*arguments)
        self.seconds += time.perf_counter() - start

    return tell


for _event in [name for name in vars(Observer) if not name.startswith("_")]:
    setattr(Timed, _event, _timing(_event))


def watched() -> float:
    """The share of a run with a CNN that is spent in observers: lines, and JSON lines in a file."""
    federation, algorithm = members(PlainCnn, (3, 32, 32)), FedAvg(LocalTraining(batch=10))
    with tempfile.TemporaryDirectory() as folder, redirect_stderr(StringIO()):
        both = Observers(RoundLines("run"), JsonLines(Path(folder, "log.jsonl"), "fedavg", 0))
        observer = Timed(both)
        run = Run(federation, algorithm, Schedule(rounds=10), observer=observer)
        seconds = timed(run.go)["wall"]
    return observer.seconds / seconds


def searching(jobs: int) -> float:
    """The wall-clock seconds of a search with so many runs at the same time."""
    with tempfile.TemporaryDirectory() as folder:
        recipe = Path(folder, "search.toml")
        recipe.write_text(SEARCH)
        out = str(Path(folder, "out"))
        command = [str(Path(sys.executable).with_name("consort")), "tune", str(recipe)]
        whole = [*command, "--jobs", str(jobs), "--out", out, "--quiet"]
        return timed(lambda: subprocess.run(whole, check=True, capture_output=True))["wall"]


def main() -> None:
    torch.set_num_threads(1)
    report = Report()
    kinds = {
        "4-layer CNN": (ModelSpec.of("cnn4"), PlainCnn, (3, 32, 32), 2),
        "one hidden layer": (ModelSpec.of("mlp"), PlainMlp, (32,), 40),
    }
    for name, (ours, own, shape, epochs) in kinds.items():
        works = {
            "ours": rounds(ours, shape, epochs),
            "own": rounds(own, shape, epochs),
            "items": rounds(ours, shape, epochs, items=True),
        }
        found = quickest(works, GOES)
        text = f"{name}: network of one's own / written for Consort, CPU"
        report.line(text, found["own"] / found["ours"], NETWORK)
        report.line(f"{name}: torch Dataset / tensors, CPU", found["items"] / found["ours"], DATA)
    report.line("observers / run, seconds", min(watched() for _ in range(3)), OBSERVERS)
    report.line("consort tune: --jobs 1 / --jobs 2, seconds", searching(1) / searching(2), TUNING)
    report.finish()


if __name__ == "__main__":
    main()
