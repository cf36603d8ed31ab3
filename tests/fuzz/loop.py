"""Runs a target on many inputs; an input that it neither accepts nor refuses is a finding."""

from __future__ import annotations

import hashlib
import resource
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.fuzz.targets import Target

from consort.errors import Refused, UsageError

CORPUS = Path(__file__).parent / "corpus"
SECONDS = 2.0
"""The processor time that one input may take."""
MEMORY = 256 << 10
"""The memory in KiB by which one input may raise the largest so far."""
_KEPT = 2000  # inputs that are changed further
LARGEST = 1 << 16
"""The bytes of an input."""


@dataclass
class Outcome:
    """What came out of a series of inputs."""

    inputs: int = 0
    accepted: int = 0
    findings: list[tuple[bytes, str]] = field(default_factory=list)


def tried(target: Target, data: bytes) -> tuple[bool, str]:
    """Whether an input was accepted, and what is wrong with how it was treated, if anything."""
    start, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    accepted, wrong = True, ""
    try:
        target.run(data)
    except (Refused, UsageError):
        accepted = False
    except Exception:
        wrong = traceback.format_exc()
    seconds = time.process_time() - start
    more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    if seconds > SECONDS:
        wrong = wrong or f"it took {seconds:.1f} seconds"
    if more > MEMORY:
        wrong = wrong or f"it took {more >> 10} MiB"
    return accepted, wrong


def corpus(target: Target) -> dict[str, bytes]:
    """The inputs that were found before, by file."""
    folder = CORPUS / target.name
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*"))}


def inputs(target: Target, seed: int) -> Iterator[bytes]:
    """Endless changes of the seeds, of what was found before, and of changed inputs."""
    random = Random(f"{target.name} {seed}")
    known = [*target.seeds(), *corpus(target).values()]
    yield from known
    fresh: list[bytes] = []
    while True:
        data = random.choice(fresh if fresh and random.random() < 0.4 else known)
        data = target.mutate(data, random)[:LARGEST]
        fresh.append(data)
        if len(fresh) > _KEPT:
            fresh.pop(random.randrange(len(fresh)))
        yield data


def fuzz(target: Target, seed: int, seconds: float = 1e9, most: int = 10**12) -> Outcome:
    """Tries inputs for some time, or so many of them; findings are kept in the corpus."""
    outcome = Outcome()
    end = time.monotonic() + seconds
    for data in inputs(target, seed):
        if outcome.inputs >= most or time.monotonic() > end or len(outcome.findings) >= 20:
            break
        outcome.inputs += 1
        accepted, wrong = tried(target, data)
        outcome.accepted += accepted
        if wrong:
            outcome.findings.append((data, wrong))
    return outcome


def keep(target: Target, data: bytes) -> Path:
    """Writes an input into the corpus."""
    path = CORPUS / target.name / hashlib.blake2b(data, digest_size=8).hexdigest()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path
