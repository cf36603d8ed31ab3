"""What a run made in Python writes into `run.json`, so that it can be reported like any other."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from pydantic_core import to_jsonable_python

import consort
from consort.core.inputs import tensors_of
from consort.core.sealed import write_json
from consort.data.examples import Splits
from consort.errors import ClientFailed, UsageError
from consort.federation.selection import table_of
from consort.models.registry import parameter_count
from consort.run.differences import differences
from consort.run.extension import refuse_extension, repeat_last_round
from consort.run.folder import FORMAT, read_description

if TYPE_CHECKING:
    from consort.core.algorithm import Algorithm
    from consort.federation.federation import Federation
    from consort.run.run import Run

PYTHON = "python"
"""The value of `made` in `run.json`, if objects in Python made the run and not a recipe."""

_UNREAD, _CONTENT = "unread", "content"
_DECIDES = ("algorithm", "kind", "seed", "recipe", "partition")


def environment() -> dict[str, Any]:
    """What a reader needs to judge timings and to repeat a run."""
    cpu = ""
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        cpu = lines[0].partition(":")[2].strip() if lines else ""
    return {
        "consort": consort.__version__,
        "commit": _commit(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu": cpu,
        "cores": os.cpu_count(),
    }


@cache
def _commit() -> str:
    """The commit of Consort's source, with `+` if it was changed; empty where there is none."""
    root = Path(consort.__file__).parents[2]
    if not (root / ".git").exists():
        return ""
    command = ["git", "-C", str(root), "describe", "--always", "--exclude=*", "--dirty=+"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return found.stdout.strip()


def described(run: Run, folder: Path) -> dict[str, Any]:
    """What `run.json` says about a run; written now if nobody has described the run there yet.

    Args:
        run: The run that is about to begin or to go on.
        folder: Its folder.

    Raises:
        UsageError: The folder holds another run that was made in Python.
    """
    path = folder / "run.json"
    if not path.exists():
        if not run.federation.holds_data:
            return {}  # the clients' data are elsewhere: the server that asked them describes it
        description = describe(run)
        _tell_unread(run, description)
        write_json(path, description)
        return description
    written = read_description(folder)
    if written.get("made") != PYTHON:  # a recipe's run was checked by those who prepared it
        return written
    now = describe(run)
    _tell_unread(run, now)
    merged = written | {"rounds": now["rounds"], "recipe": _with_rounds(written["recipe"], run)}
    if _same_as_far_as_read(written["clients"], now["clients"]):
        known = {client: about for client, about in now["clients"].items() if _UNREAD not in about}
        merged |= {"clients": written["clients"] | known}
        now |= {"partition": written["partition"]}
    for key, before, after in differences(_decisive(merged), _decisive(now)):
        raise UsageError(
            f"{folder} holds a run with another {key} ({before}, now {after}): choose another "
            "folder, or delete it"
        )
    if merged["rounds"] != written["rounds"]:
        refuse_extension(folder, written["rounds"], now["rounds"], run.algorithm, run.federation)
        repeat_last_round(run, folder, written["rounds"])
    if merged != written:
        write_json(path, merged)
    return merged


def describe(run: Run) -> dict[str, Any]:
    """What is known about a run of objects made in Python, with the same keys as for a recipe.

    Args:
        run: The run.
    """
    federation, algorithm = run.federation, run.algorithm
    digest = hashlib.blake2b(digest_size=8)
    clients = {}
    for client in federation.evaluation_ids:  # one by one, since all may not fit into memory
        try:
            data = federation.data(client)
        except Exception as error:
            # The client fails when it is asked, and the schedule decides what follows.
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            clients[client] = _client(federation, client, None) | {_UNREAD: reason}
            continue
        own = hashlib.blake2b(digest_size=8)
        for part in _parts_to_digest(client, data):
            digest.update(part)
            own.update(part)
        clients[client] = _client(federation, client, data) | {_CONTENT: own.hexdigest()}
    return {
        "format": FORMAT,
        "made": PYTHON,
        "title": run.title,
        "algorithm": run.name or name_of(algorithm),
        "kind": type(algorithm).__name__,
        "description": (type(algorithm).__doc__ or "").partition("\n")[0],
        "reports": algorithm.reports,
        "seed": run.seed,
        "rounds": run.schedule.rounds,
        "environment": environment(),
        "recipe": _settings(run),
        "partition": digest.hexdigest(),
        "tasks": _tasks(federation),
        "clients": clients,
        **{protection.table: asdict(protection) for protection in federation.protections},
        "workers": run.workers,
        "data": None,
    }


def name_of(algorithm: Algorithm[Any]) -> str:
    """The name of an algorithm where nobody gives it another: as in recipes, or its class.

    Args:
        algorithm: The algorithm.
    """
    package, _, module = type(algorithm).__module__.rpartition(".")
    return module if package == "consort.algorithms" else type(algorithm).__name__


def _tell_unread(run: Run, description: Mapping[str, Any]) -> None:
    for client, about in description["clients"].items():
        if reason := about.get(_UNREAD):
            run.observer.failed(ClientFailed(client, f"its data cannot be read ({reason})"))


def _same_as_far_as_read(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether all clients have the data they had, except where these cannot be or were not read."""
    unread = {c for about in (before, now) for c in about if _UNREAD in about[c]}
    return before.keys() == now.keys() and all(
        _CONTENT in before[c] and before[c][_CONTENT] == now[c][_CONTENT]
        for c in now.keys() - unread
    )


def _decisive(description: Mapping[str, Any]) -> dict[str, Any]:
    return {key: description[key] for key in _DECIDES}


def _with_rounds(recipe: Mapping[str, Any], run: Run) -> dict[str, Any]:
    return {**recipe, "run": {**recipe["run"], "rounds": run.schedule.rounds}}


def _settings(run: Run) -> dict[str, Any]:
    """What decides the numbers, under the names that recipes have for it."""
    federation, algorithm = run.federation, run.algorithm
    fields = [f for f in dataclasses.fields(cast(Any, algorithm)) if f.compare]
    options = {field.name: getattr(algorithm, field.name) for field in fields}
    protections = {p.table: asdict(p) for p in federation.protections}
    settings = {
        "algorithms": {run.name or name_of(algorithm): options},
        "run": _schedule(run),
        "compute": asdict(federation.compute),
        "batchnorm": federation.batchnorm,
        "initial_seed": federation.seed,
        **_server(federation),
        **protections,
    }
    plain: dict[str, Any] = json.loads(
        json.dumps(to_jsonable_python(settings, fallback=_place, serialize_unknown=False))
    )
    return plain


def _server(federation: Federation) -> dict[str, Any]:
    """A digest of the examples of the server, if it has any."""
    if federation.server_data is None:
        return {}
    digest = hashlib.blake2b(digest_size=8)
    for tensor in tensors_of(federation.server_inputs):
        digest.update(tensor.contiguous().numpy().tobytes())
    return {"server": {"data": digest.hexdigest()}}


def _schedule(run: Run) -> dict[str, Any]:
    """The schedule; a run of before there were selections has none."""
    chosen = {"selection": table_of(run.schedule.selection)} if run.schedule.selection else {}
    return {k: v for k, v in asdict(run.schedule).items() if k != "selection"} | chosen


def _place(value: Any) -> str:
    """Where an object that is no plain value comes from; the same in every process."""
    kind = value if hasattr(value, "__qualname__") else type(value)
    return f"{kind.__module__}:{kind.__qualname__}"


def _tasks(federation: Federation) -> dict[str, Any]:
    tasks: dict[str, Any] = {}
    for client in federation.evaluation_ids:
        for name, task in federation.members[client].tasks.items():
            tasks[name] = {
                "kind": type(task).__name__,
                "metric": task.metric,
                "higher_is_better": task.higher_is_better,
            }
    for extra in federation.extras:
        tasks |= extra.tasks
    return tasks


def _client(federation: Federation, client: str, data: Splits | None) -> dict[str, Any]:
    """What is known of a client; no numbers of examples if its data cannot be read."""
    member = federation.members[client]
    sizes = map(len, (data.train, data.validation, data.test)) if data else (0, 0, 0)
    return {
        "group": client,
        "model": str(member.model),
        "parameters": parameter_count(federation.blueprint(client).model) if data else 0,
        "tasks": list(member.tasks),
        **dict(zip(("train", "validation", "test"), sizes, strict=True)),
        "labels": _labels(data) if data else {},
        "data": "",
        "scan": None,
    }


def _labels(data: Splits) -> dict[str, int]:
    """How many examples of each class a client holds; of the first task that has classes."""
    for task in data.train.targets:
        parts = [part.targets[task] for part in (data.train, data.validation, data.test)]
        if parts[0].ndim == 1 and not parts[0].is_floating_point():
            values, counts = np.unique(torch.cat(parts).numpy(), return_counts=True)
            return dict(zip(map(str, values.tolist()), counts.tolist(), strict=True))
    return {}


def _parts_to_digest(client: str, data: Splits) -> Iterator[bytes]:
    """Who holds how many examples with which targets."""
    for part in data.parts:
        yield f"{client} {len(part)}".encode()
        for task, target in sorted(part.targets.items()):
            yield task.encode()
            yield target.contiguous().numpy().tobytes()
