"""A user's own network and data set against the same written for Consort.

Rounds of FedAvg with the 4-layer CNN and with a small fully connected network; variants alternate
in one process, and the fewest CPU seconds of each are compared.
"""

from __future__ import annotations

import torch
from measure import Report, quickest
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import Dataset

from consort import Classification, Federation, LocalTraining, Member, ModelSpec, Run, Schedule
from consort.algorithms.fedavg import FedAvg

CLIENTS, EXAMPLES, GOES = 4, 200, 7
NETWORK, DATA = "<=1.03", "<=1.1"


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


def rounds(model: object, shape: tuple[int, ...], epochs: int, items: bool = False):  # noqa: ANN201
    """Makes a function that trains for one round, with data that are loaded already."""
    generator = torch.Generator().manual_seed(0)
    members = {}
    for number in range(CLIENTS):
        inputs = torch.randn(EXAMPLES, *shape, generator=generator)
        labels = torch.randint(0, 10, (EXAMPLES,), generator=generator)
        data = Items(inputs, labels) if items else (inputs, labels)
        members[f"c{number}"] = Member.of(Classification(10), model, data)
    federation = Federation(members)
    algorithm = FedAvg(LocalTraining(epochs=epochs, batch=10))
    return lambda: Run(federation, algorithm, Schedule(rounds=1)).go()


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
    report.finish()


if __name__ == "__main__":
    main()
