"""What a recipe comes to, and the file in which it is recorded."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from consort.engines.choice import EngineChoice
from consort.experiment.loading import load_recipe
from consort.experiment.preparation import prepare_run

HERE = Path(__file__).parent
NUMBERS = HERE / "numbers"
RECIPES = sorted(path.stem for path in (HERE / "recipes").glob("*.toml"))
SEED = 0
OF_THE_MACHINE = {"seconds", "evaluation_seconds", "peak_memory_mib"}
"""Metrics that differ from run to run."""

Key = tuple[int, str, str, str, str, str, str, int]
"""Round, metric, client, task, split, model, part, number of examples."""


class Outcome(NamedTuple):
    """The rows of one run, in the order of their keys, and a digest of the server's last state."""

    rows: list[tuple[Key, float | None]]
    """None stands for a value that has changed since it was recorded on that machine."""
    server: str | None


def outcomes(recipe: str, folder: Path, workers: int = 1) -> dict[str, Outcome]:
    """Runs every algorithm of a recipe, as the command does."""
    loaded = load_recipe(HERE / "recipes" / f"{recipe}.toml")
    found = {}
    for name in loaded.algorithms:
        run = prepare_run(loaded, name, SEED, folder / name, engine=EngineChoice(workers=workers))
        rows = [
            ((row.round, row.metric, *row[3:]), row.value)
            for row in run.go()
            if row.metric not in OF_THE_MACHINE
        ]
        # Workers may answer in another order, and equal keys come in the order of their calls.
        found[name] = Outcome(sorted(rows, key=lambda row: row[0]), digest(run.server))
    return found


def digest(value: Any) -> str:
    """A digest of all numbers and texts in a value, whatever its records are called."""
    total = hashlib.sha256()
    for piece in _pieces(value):
        total.update(len(piece).to_bytes(8, "big") + piece)
    return total.hexdigest()


def _pieces(value: Any) -> Iterator[bytes]:
    if isinstance(value, torch.Tensor):
        yield f"{value.dtype} {tuple(value.shape)}".encode()
        yield value.detach().contiguous().cpu().numpy().tobytes()
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        yield from _pieces(fields)
    elif isinstance(value, Mapping):
        yield f"{len(value)} entries".encode()
        for key in sorted(value, key=str):
            yield str(key).encode()
            yield from _pieces(value[key])
    elif isinstance(value, list | tuple):
        yield f"{len(value)} items".encode()
        for item in value:
            yield from _pieces(item)
    elif value is None or isinstance(value, bool | int | float | str):
        yield repr(value).encode()
    else:
        raise TypeError(f"no digest of a {type(value).__name__}")


def machine() -> dict[str, str]:
    """What decides the last bits of arithmetic."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    about = {key.strip(): value.strip() for key, _, value in (x.partition(":") for x in lines)}
    return {
        "torch": torch.__version__,
        "capability": torch.backends.cpu.get_cpu_capability(),
        "cpu": about.get("model name", ""),
        # Clouds call processors of several generations by one name.
        "generation": f"{about.get('cpu family', '')}.{about.get('model', '')}",
    }


def record(recipe: str, found: Mapping[str, Outcome]) -> None:
    """Records the outcomes of this machine; what they change is no longer known of other machines.

    Args:
        recipe: The recipe.
        found: The outcome of each of its algorithms.
    """
    exact, known = read(recipe) if any(NUMBERS.glob(f"*/{recipe}.json")) else (False, None)
    own, before = _path(recipe, machine()), known if exact else None
    _write(own, machine(), found)
    for folder in sorted(NUMBERS.iterdir()):
        path = folder / own.name
        if path == own or (before is None and path.exists()):
            continue
        where, theirs = _load(path if path.exists() else min(folder.glob("*.json")))
        if not path.exists():
            theirs = {}  # a new recipe
        _write(path, where, still_known(found, before or {}, theirs))


def still_known(
    found: Mapping[str, Outcome], before: Mapping[str, Outcome], theirs: Mapping[str, Outcome]
) -> dict[str, Outcome]:
    """The outcomes of another machine, without what is different on this one than before."""
    kept = {}
    for name, outcome in found.items():
        old, other = (runs.get(name, Outcome([], None)) for runs in (before, theirs))
        known, values = _numbered(old), _numbered(other)
        rows: list[tuple[Key, float | None]] = [
            (key[0], values.get(key) if repr(known.get(key)) == repr(value) else None)
            for key, value in _numbered(outcome).items()
        ]
        kept[name] = Outcome(rows, other.server if old.server == outcome.server else None)
    return kept


def _numbered(outcome: Outcome) -> dict[tuple[Key, int], float | None]:
    """The rows, with numbers for those that have the same key."""
    seen: Counter[Key] = Counter()
    numbered = {}
    for key, value in outcome.rows:
        numbered[key, seen[key]] = value
        seen[key] += 1
    return numbered


def _write(path: Path, where: Mapping[str, str], found: Mapping[str, Outcome]) -> None:
    """Writes outcomes into a small file, in which what many rows share is written once.

    A row is the place of its key in `keys`, and a value; a key is the places of what was measured
    in `whats` and of whom in `whos`. JSON writes the shortest decimals that give the same float
    again, so nothing is rounded.
    """
    keys = sorted({key for outcome in found.values() for key, _ in outcome.rows})
    places = {key: place for place, key in enumerate(keys)}
    whats, whos = sorted({_what(key) for key in keys}), sorted({_who(key) for key in keys})
    content = {
        "machine": where,
        "whats": whats,
        "whos": whos,
        "keys": [(whats.index(_what(key)), whos.index(_who(key))) for key in keys],
        "runs": {
            name: {
                "server": outcome.server,
                "keys": [places[key] for key, _ in outcome.rows],
                "values": [value for _, value in outcome.rows],
            }
            for name, outcome in found.items()
        },
    }
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content, separators=(",", ":")) + "\n")


def read(recipe: str) -> tuple[bool, dict[str, Outcome]]:
    """Whether outcomes were recorded on this machine, and these, or else those of another one."""
    for kind in (machine(), _named(machine())):
        path = _path(recipe, kind)
        if path.exists() and (loaded := _load(path))[0] == kind:
            return True, loaded[1]
    return False, _load(min(NUMBERS.glob(f"*/{recipe}.json")))[1]


def _named(kind: Mapping[str, str]) -> dict[str, str]:
    """A machine as it was described when the first numbers were recorded: by its name alone."""
    return {key: value for key, value in kind.items() if key != "generation"}


def _load(path: Path) -> tuple[dict[str, str], dict[str, Outcome]]:
    """The machine of a file, and the outcomes in it."""
    content = json.loads(path.read_text())
    whats, whos = content["whats"], content["whos"]
    keys = [_key(whats[what], whos[who]) for what, who in content["keys"]]
    found = {}
    for name, run in content["runs"].items():
        chosen = [keys[place] for place in run["keys"]]
        found[name] = Outcome(list(zip(chosen, run["values"], strict=True)), run["server"])
    return content["machine"], found


def _what(key: Key) -> tuple[int, str, str, str, str, str]:
    round_, metric, _, task, split, model, part, _ = key
    return round_, metric, task, split, model, part


def _who(key: Key) -> tuple[str, int]:
    return key[2], key[7]


def _key(what: Sequence[Any], who: Sequence[Any]) -> Key:
    (round_, metric, task, split, model, part), (client, n) = what, who
    return round_, metric, client, task, split, model, part, n


def _path(recipe: str, where: Mapping[str, str]) -> Path:
    """The file of a recipe in the folder of a machine."""
    words = [where["cpu"], where.get("generation", ""), where["capability"]]
    folder = re.sub(r"[^a-z0-9]+", "-", " ".join(filter(None, words)).lower())
    return NUMBERS / folder / f"{recipe}.json"
