"""Measures several variants alternately, each in a process of its own."""

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
    """Wall-clock and CPU seconds of a function, including those of its child processes."""
    wall, cpu = time.perf_counter(), _cpu()
    work()
    return {"wall": time.perf_counter() - wall, "cpu": _cpu() - cpu, "mib": peak_memory()}


def quickest(works: Mapping[str, Callable[[], Any]], goes: int) -> dict[str, float]:
    """The fewest CPU seconds of each function; they alternate, so that conditions are the same.

    Args:
        works: The functions by name.
        goes: How often each is run.
    """
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
    """Runs `script --child contender…` for all variants alternately.

    Args:
        script: The benchmark.
        contenders: The arguments of each variant.
        repeats: How often each variant is run.

    Returns:
        What each variant printed as JSON, by its arguments.
    """
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
    """The median of the ratios of two variants that were measured in the same turn."""
    turns = zip(measured[ours], measured[theirs], strict=True)
    return statistics.median(mine[what] / other[what] for mine, other in turns)


class Report:
    """Prints results as they are measured, and records which targets were missed."""

    def __init__(self) -> None:
        self.missed: list[str] = []
        print(f"{_cpu_name()}, {os.cpu_count()} cores, Python {platform.python_version()}")

    def line(self, text: str, value: float, target: str = "") -> None:
        """Prints one result; a target is a text such as `<=0.9`."""
        good = (
            not target
            or {"<=": value <= float(target[2:]), ">=": value >= float(target[2:])}[target[:2]]
        )
        verdict = f"   target {target}: {'met' if good else 'MISSED'}" if target else ""
        print(f"{text:<62} {value:9.3g}{verdict}")
        if not good:
            self.missed.append(text)

    def miss(self, reason: str) -> None:
        """Records a target as missed that could not be measured."""
        print(reason)
        self.missed.append(reason)

    def finish(self) -> None:
        """Exits with code 1 if `--check` was given and a target was missed."""
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
