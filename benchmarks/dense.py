"""The cost of FedHCA²'s server and of M-Fed's proximal term, and the speed of drawing scenes.

The published federation: updates of 6 encoders of Swin-T's size (27.5 M parameters) and 9 decoders
(175,776), which FedHCA² aggregates and, for comparison, one weighted mean. M-Fed trains a
ResNet-18. The variants alternate in one process, and the fastest of several runs counts.
"""

from __future__ import annotations

import json
import sys
from statistics import median

import torch
from measure import Report, peak_memory, quickest, take_turns, timed

REPEATS, GOES = 3, 5
CLIENTS, TASKS_OF_LAST = 6, 4
ENCODER = [(4 * w, w) for w in (96, 192, 384, 768) for _ in range(4)]
ENCODER += [(768, 3072), (768, 3072), (2304, 768), (2304, 768)] + [(384, 1536), (1152, 384)] * 6
DECODER = {"linears.0": (96, 96), "linears.1": (96, 192), "linears.2": (96, 384)}
DECODER |= {"linears.3": (96, 768), "fuse.0": (96, 384), "fuse.1": (96,)}
IMAGES, SIZE = 64, 96
TRAINED, BATCH = 224, 8


def update(generator: torch.Generator, tasks: int):  # noqa: ANN201
    from consort.core.params import Params

    shapes = {f"encoder.layers.{n}.weight": shape for n, shape in enumerate(ENCODER)}
    for task in range(tasks):
        shapes |= {f"decoders.t{task}.{name}.weight": shape for name, shape in DECODER.items()}
    return Params({n: torch.rand(s, generator=generator) * 0.02 for n, s in shapes.items()})


def aggregate(_: str) -> dict[str, float]:
    """A later round of FedHCA² on given answers, and their weighted mean."""
    from consort.algorithms.fedhca2 import FedHCA2, Server
    from consort.core.algorithm import Clients
    from consort.core.params import Params, mean
    from consort.engines.scripted import Scripted
    from consort.training.compute import keep_freed_pages

    keep_freed_pages()
    generator = torch.Generator().manual_seed(0)
    ids = [f"c{n}" for n in range(CLIENTS)]
    tasks = dict.fromkeys(ids, 1) | {ids[-1]: TASKS_OF_LAST}
    answers = {c: update(generator, tasks[c]) for c in ids}
    algorithm = FedHCA2()
    weights = {c: dict.fromkeys(map(algorithm.part_of, u), 0.1) for c, u in answers.items()}
    speeds = {c: dict.fromkeys(parts, 0.0) for c, parts in weights.items()}
    owed = {c: {"start": Params({})} for c in ids}
    server = Server(owed, weights, speeds, Params({}), {}, {c: c for c in ids})
    engine = Scripted(lambda call: {"update": answers[call.client]})
    clients = Clients(tuple(ids), 2, 9, 0, engine, CLIENTS)
    parts = [answers[c].only("encoder") for c in ids]
    decoders = [
        Params({inside: answers[c][f"decoders.t{task}.{inside}.weight"] for inside in DECODER})
        for c in ids
        for task in range(tasks[c])
    ]
    before = peak_memory()
    server = algorithm.round(server, clients)
    grown = peak_memory() - before

    def later() -> None:
        engine.calls.clear()  # they hold references to what was sent
        algorithm.round(server, clients)

    works = {"mean": lambda: (mean(parts, range(1, 7)), mean(decoders)), "fedhca2": later}
    return quickest(works, GOES) | {"growth": grown}


def train(name: str) -> dict[str, float]:
    """Training steps of a ResNet-18 with and without M-Fed's proximal term."""
    from consort.algorithms.mfed import unit_pull_towards
    from consort.core.params import Params
    from consort.data.examples import Examples, Splits
    from consort.domains.scenes.tasks.segmentation import Segmentation
    from consort.models.registry import ModelSpec, build
    from consort.training.client import Client
    from consort.training.local import LocalTraining
    from consort.training.objectives import pull_towards

    generator = torch.Generator().manual_seed(0)
    x = torch.rand(BATCH, 3, TRAINED, TRAINED, generator=generator)
    y = torch.randint(0, 5, (BATCH, TRAINED, TRAINED), generator=generator)
    data, tasks = Examples(x, {"segment": y}), {"segment": Segmentation(5)}
    model = build(ModelSpec.of({"name": "resnet_pyramid"}), tasks, x[0], 0)
    model.to(memory_format=torch.channels_last)
    client = Client("c0", model, tasks, Splits(data, data, data), {}, generator, 1, 1)
    anchor = Params.of(client.model).only("encoder").without("buffers")
    adjust = {"norm": unit_pull_towards, "squared": pull_towards}[name](anchor, 0.01)
    local = LocalTraining(epochs=2, batch=BATCH, optimizer="adam", lr=1e-4)
    works = {"plain": lambda: local.run(client), "pull": lambda: local.run(client, adjust=adjust)}
    return quickest(works, GOES)


def draw(_: str) -> dict[str, float]:
    """Draws scenes with all their labels."""
    from consort.domains.scenes.synthetic.scenes import synthetic_scenes

    synthetic_scenes(0, examples=16, size=SIZE)
    return timed(lambda: synthetic_scenes(1, examples=IMAGES, size=SIZE))


def child(kind: str, name: str) -> None:
    torch.set_num_threads(1)
    print(json.dumps({"aggregate": aggregate, "train": train, "draw": draw}[kind](name)))


def main() -> None:
    report = Report()
    contenders = [("aggregate", "fedhca2"), ("train", "norm"), ("train", "squared")]
    turns = take_turns(__file__, [*contenders, ("draw", "scenes")], REPEATS)
    rounds = turns["aggregate fedhca2"]
    times = median(turn["fedhca2"] / turn["mean"] for turn in rounds)
    report.line("fedhca2 / weighted mean, CPU time of the server", times, "<=4")
    encoder = sum(a * b for a, b in ENCODER) * 4 / 2**20
    grown = min(turn["growth"] for turn in rounds) / encoder
    report.line("fedhca2: memory besides the answers, in encoders", grown, "<=2")
    for pull in ("norm", "squared"):
        times = median(turn["pull"] / turn["plain"] for turn in turns[f"train {pull}"])
        report.line(f"mfed, {pull}: step with the proximal term / without", times, "<=1.05")
    speed = max(IMAGES / turn["cpu"] for turn in turns["draw scenes"])
    report.line(f"scenes of {SIZE}x{SIZE} with all labels, per second and core", speed, ">=50")
    report.finish()


if __name__ == "__main__":
    child(*sys.argv[2:4]) if "--child" in sys.argv else main()
