"""Fuzzes what takes input from others, for as long as one likes.

    python -m tests.fuzz --seconds 3600
    python -m tests.fuzz --seconds 60 --target reply --seed 7
    python -m tests.fuzz --seconds 600 --target message --engine atheris

Without `--target`, all entry points of `tests/fuzz/targets.py` share the time. An input that is
neither accepted nor refused is written into `tests/fuzz/corpus`, where every test run tries it
again; the command then ends with 1. The engine `atheris` is guided by coverage; it needs
`pip install atheris` and one target, and runs until the time is over or an input is found.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType

import torch
from tests.fuzz.loop import corpus, fuzz, keep, tried
from tests.fuzz.targets import TARGETS, Target


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--target", choices=sorted(TARGETS), action="append")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--engine", choices=("python", "atheris"), default="python")
    options = parser.parse_args()
    torch.set_num_threads(1)
    targets = [TARGETS[name] for name in options.target or sorted(TARGETS)]
    if options.engine == "atheris":
        return guided(targets[0], int(options.seconds))
    found = 0
    for target in targets:
        outcome = fuzz(target, options.seed, options.seconds / len(targets))
        print(
            f"{target.name}: {outcome.inputs} inputs, {outcome.accepted} accepted, "
            f"{len(outcome.findings)} findings"
        )
        for data, wrong in outcome.findings:
            print(f"{keep(target, data)}\n{wrong}")
        found += len(outcome.findings)
    return 1 if found else 0


def guided(target: Target, seconds: int) -> int:
    """Runs atheris, which looks for inputs that reach new code."""
    import atheris

    def one(data: bytes) -> None:
        _, wrong = tried(target, data)
        if wrong:
            keep(target, data)
            raise RuntimeError(wrong)

    for function in entrances():
        atheris.instrument_func(function)
    folder = Path(tempfile.mkdtemp(prefix="consort-fuzz-"))
    for number, data in enumerate((*target.seeds(), *corpus(target).values())):
        (folder / str(number)).write_bytes(data)
    atheris.Setup([sys.argv[0], f"-max_total_time={seconds}", str(folder)], one)
    atheris.Fuzz()
    return 0


def entrances() -> Iterator[FunctionType]:
    """The functions of ours that read and check what others send."""
    for name, module in list(sys.modules.items()):
        if name.startswith(("consort.core", "consort.engines")):
            for value in vars(module).values():
                members = vars(value).values() if isinstance(value, type) else [value]
                for found in members:
                    if isinstance(found, FunctionType) and found.__module__ == name:
                        yield found


if __name__ == "__main__":
    sys.exit(main())
