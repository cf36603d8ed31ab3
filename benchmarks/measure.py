"""Measures contenders side by side: each in a process of its own, taking turns."""

from __future__ import annotations

import json
import math
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any


def timed(work: Callable[[], Any]) -> dict[str, float]:
    """Wall and CPU seconds of some work, with those of the processes it started and ended."""
    wall, cpu = time.perf_counter(), _cpu()
    work()
    return {"wall": time.perf_counter() - wall, "cpu": _cpu() - cpu, "mib": peak_memory()}


def quickest(works: Mapping[str, Callable[[], Any]], goes: int) -> dict[str, float]:
    """CPU seconds of the quickest go of each work; works take turns, so that all meet the same."""
    found = dict.fromkeys(works, math.inf)
    for _ in range(goes):
        for name, work in works.items():
            found[name] = min(found[name], timed(work)["cpu"])
    return found


def _cpu() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def peak_memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def take_turns(
    script: str, contenders: Sequence[Sequence[str]], repeats: int
) -> dict[str, list[dict[str, Any]]]:
    """Runs `script --child contender…` for all contenders in turn, `repeats` times."""
    found: dict[str, list[dict[str, Any]]] = {" ".join(c): [] for c in contenders}
    for _ in range(repeats):
        for contender in contenders:
            command = [sys.executable, script, "--child", *contender]
            environment = os.environ | {"OMP_NUM_THREADS": "1"}
            child = subprocess.run(command, capture_output=True, text=True, env=environment)
            if child.returncode:
                sys.exit(f"{' '.join(contender)} failed:\n{child.stderr}")
            found[" ".join(contender)].append(json.loads(child.stdout.splitlines()[-1]))
            print(".", end="", flush=True, file=sys.stderr)
    print(file=sys.stderr)
    return found


def ratio(
    measured: Mapping[str, Sequence[Mapping[str, float]]], ours: str, theirs: str, what: str
) -> float:
    """The median over the turns of ours / theirs, each turn measured side by side."""
    turns = zip(measured[ours], measured[theirs], strict=True)
    return statistics.median(mine[what] / other[what] for mine, other in turns)


class Report:
    """Prints figures as they come, and remembers which targets were missed."""

    def __init__(self) -> None:
        self.missed: list[str] = []
        print(f"{_cpu_name()}, {os.cpu_count()} cores, Python {platform.python_version()}")

    def line(self, text: str, value: float, target: str = "") -> None:
        """One figure; `target` is such as `<= 0.9`."""
        good = (
            not target
            or {"<=": value <= float(target[2:]), ">=": value >= float(target[2:])}[target[:2]]
        )
        verdict = f"   target {target}: {'met' if good else 'MISSED'}" if target else ""
        print(f"{text:<62} {value:9.3g}{verdict}")
        if not good:
            self.missed.append(text)

    def miss(self, reason: str) -> None:
        """Something that could not be measured, so no target of it is met."""
        print(reason)
        self.missed.append(reason)

    def finish(self) -> None:
        """Exits with 1 if `--check` was given and a target was missed."""
        if self.missed and "--check" in sys.argv:
            sys.exit(f"missed: {'; '.join(self.missed)}")


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    names = [
        line.partition(":")[2].strip()
        for line in (info.read_text().splitlines() if info.exists() else ())
        if line.startswith("model name")
    ]
    return names[0] if names else platform.processor()
