"""Folders like those that runs leave behind, with plausible numbers."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from consort.core.row import Row
from consort.results.result import Result
from consort.run.history import History

TASKS: dict[str, dict[str, Any]] = {
    "shape": {"metric": "accuracy", "higher_is_better": True},
    "depth": {"metric": "rmse", "higher_is_better": False},
}
MODELS = ["cnn4(scale=0.5)", "cnn4(scale=1.0)", "resnet(depth=10)"]
ROLES = {"encoder": 1_200_000, "heads": 90_000, "buffers": 4_000}


def description(clients: int = 6, tasks: dict[str, Any] = TASKS, seed: int = 0) -> dict[str, Any]:
    rng = random.Random(f"federation {seed}")
    names = list(tasks)
    return {
        "title": "Unlike clients",
        "partition": f"{rng.getrandbits(64):016x}",
        "recipe": {"clients": clients, "partition": {"by": "dirichlet", "alpha": 0.3}},
        "tasks": tasks,
        "clients": {
            f"client-{number}": _client(rng, number, names[: 1 + number % len(names)])
            for number in range(clients)
        },
    }


def _client(rng: random.Random, number: int, tasks: list[str]) -> dict[str, Any]:
    weights = [rng.gammavariate(0.3, 1.0) for _ in range(10)]
    size = rng.randint(80, 600)
    labels = {str(i): round(size * w / sum(weights)) for i, w in enumerate(weights)}
    total = sum(labels.values())
    return {
        "group": "left" if number % 3 else "right",
        "model": MODELS[number % len(MODELS)],
        "parameters": 100_000 * (1 + number % len(MODELS)),
        "tasks": tasks,
        "train": total - 2 * (total // 5),
        "validation": total // 5,
        "test": total // 5,
        "labels": {name: count for name, count in labels.items() if count},
    }


def write_run(
    folder: Path,
    algorithm: str = "fedavg",
    seed: int = 0,
    clients: int = 6,
    rounds: int = 10,
    models: tuple[str, ...] = ("global",),
    tasks: dict[str, Any] = TASKS,
    skill: float = 0.85,
    roles: dict[str, int] = ROLES,
    about: Mapping[str, Any] = MappingProxyType({}),
    notes: Iterable[Row] = (),
) -> Path:
    """A run whose first model is the reported one; `skill` is the accuracy it comes near.

    What `about` says stands in `run.json` in place of the usual; `notes` are further rows.
    """
    folder.mkdir(parents=True, exist_ok=True)
    told = description(clients, tasks, seed) | {
        "algorithm": algorithm,
        "kind": algorithm.title(),
        "description": f"What {algorithm} does, in one line.",
        "reports": models[0],
        "seed": seed,
        "rounds": rounds,
        "workers": 2,
        "data": None,
        "environment": {"consort": "0.1.0", "python": "3.11", "cpu": "a processor", "cores": 2},
    }
    told |= about
    (folder / "run.json").write_text(json.dumps(told))
    history = History(folder / "history.jsonl")
    rng = random.Random(f"{algorithm} {seed}")
    gifts = {name: rng.gauss(0, 0.05) for name in told["clients"]}
    for round_ in range(1, rounds + 1):
        _train(history, rng, round_, told["clients"], roles)
        for place, model in enumerate(models):
            progress = (skill - 0.06 * place) * (1 - 0.8 * math.exp(-4 * round_ / rounds))
            _evaluate(history, rng, round_, told, model, progress, gifts)
        history.add(Row(round_, "evaluation_seconds", 0.3 + rng.random() / 10))
        history.add(Row(round_, "peak_memory_mib", 400.0 + round_))
    for row in notes:
        history.add(row)
    history.flush()
    return folder


def _train(
    history: History,
    rng: random.Random,
    round_: int,
    clients: dict[str, Any],
    roles: dict[str, int],
) -> None:
    seconds = 0.0
    for name, client in clients.items():
        for role, size in roles.items():
            history.add(Row(round_, "bytes_down", size, name, part=role))
            history.add(Row(round_, "bytes_up", size, name, part=role))
        took = client["train"] / 400 * (1 + rng.random() / 5)
        history.add(Row(round_, "seconds", took, name, part="train"))
        seconds += took
    history.add(Row(round_, "seconds", seconds))


def _evaluate(
    history: History,
    rng: random.Random,
    round_: int,
    told: dict[str, Any],
    model: str,
    progress: float,
    gifts: dict[str, float],
) -> None:
    for name, client in told["clients"].items():
        for task in client["tasks"]:
            about = told["tasks"][task]
            for split in ("validation", "test"):
                value = min(1.0, max(0.0, progress + gifts[name] + rng.gauss(0, 0.01)))
                own = value if about["higher_is_better"] else 2.0 - value
                for metric, number in ((about["metric"], own), ("loss", 2.3 - 2 * value)):
                    row = Row(round_, metric, number, name, task, split, model, n=client[split])
                    history.add(row)


def model_notes(
    clients: int = 6, rounds: int = 10, models: int = 3, chosen: int | None = None
) -> list[Row]:
    """What an algorithm with several models notes; `chosen` is the one that all clients take."""
    rng = random.Random(f"{clients} {rounds} {models}")
    rows = []
    for round_ in range(1, rounds + 1):
        rows.append(Row(round_, "objective", 3.0 / round_ + rng.random() / 10))
        for number in range(clients):
            name, weights = f"client-{number}", [rng.random() for _ in range(models)]
            best = weights.index(max(weights)) if chosen is None else chosen
            rows.append(Row(round_, "chosen_model", best, name))
            if rng.random() < 0.8:  # who was absent has no weights
                rows.append(Row(round_, "client_weight", rng.random() / clients, name))
                rows += (
                    Row(round_, "model_weight", weight / sum(weights), name, part=str(model))
                    for model, weight in enumerate(weights)
                )
    return rows


def load_run(folder: Path, **settings: Any) -> Result:
    return Result.load(write_run(folder, **settings))
