"""Whole runs side by side, in processes of their own."""

from __future__ import annotations

import json
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any, Protocol, TypedDict

import torch

from consort.engines.forking import forked
from consort.errors import Failure, UsageError


class TuningJob(TypedDict):
    """One run, as plain values."""

    recipe: dict[str, Any]
    """The recipe's table."""
    algorithm: str
    seed: int
    folder: str
    data: str | None


class JobRunner(Protocol):
    """Makes whole runs, several at the same time."""

    def run(self, jobs: Sequence[TuningJob]) -> Iterator[str]:
        """Makes runs, or continues them.

        Args:
            jobs: The runs.

        Yields:
            For every run in turn why it failed; an empty text if it is finished.
        """
        ...


class Jobs:
    """Processes that make runs, each one run at a time.

    They are forked from this one when the first runs are handed out: what is imported and loaded
    by then need not be imported and loaded again, and is in memory once.

    Args:
        count: How many runs are made at the same time.
    """

    def __init__(self, count: int) -> None:
        torch.set_num_threads(1)  # threads of this process would be missing in those it forks
        self._count = count
        self._processes: dict[Connection, ForkProcess] = {}
        self._busy: dict[Connection, int] = {}

    def run(self, jobs: Sequence[TuningJob]) -> Iterator[str]:
        """Makes runs, or continues them.

        Args:
            jobs: The runs.

        Yields:
            For every run in turn why it failed; an empty text if it is finished.

        Raises:
            Failure: A process died.
        """
        while len(self._processes) < self._count:
            process, pipe = forked(serve, strangers=list(self._processes))
            self._processes[pipe] = process
        waiting = deque(range(len(jobs)))
        answers: dict[int, str] = {}
        try:
            for number in range(len(jobs)):
                while number not in answers:
                    self._hand_out(waiting, jobs)
                    answers |= self._collected(jobs)
                yield answers.pop(number)
        finally:
            if self._busy:  # with runs that nobody wants any more
                self.close()

    def _hand_out(self, waiting: deque[int], jobs: Sequence[TuningJob]) -> None:
        for pipe in self._processes.keys() - self._busy.keys():
            if waiting:
                self._busy[pipe] = waiting.popleft()
                with suppress(BrokenPipeError):  # it died, which is noticed by `_collected`
                    pipe.send_bytes(json.dumps(jobs[self._busy[pipe]]).encode())

    def _collected(self, jobs: Sequence[TuningJob]) -> dict[int, str]:
        """The answers of the runs that have ended, by the number of the run."""
        found = {}
        for pipe in wait(list(self._busy)):
            number = self._busy[pipe]  # type: ignore[index]
            try:
                found[number] = str(json.loads(pipe.recv_bytes()))  # type: ignore[union-attr]
            except (EOFError, ConnectionResetError):
                raise Failure(
                    f"{jobs[number]['folder']}: the process that made this run died; nothing is "
                    "lost: repeat the command to continue"
                ) from None
            del self._busy[pipe]  # type: ignore[arg-type]
        return found

    def close(self) -> None:
        """Ends all processes, also in the middle of a run."""
        for pipe, process in self._processes.items():
            process.kill()
            process.join()
            pipe.close()
        self._processes.clear()
        self._busy.clear()


@contextmanager
def opened(count: int) -> Iterator[Jobs]:
    """Processes for runs, which end with the context.

    Args:
        count: How many.
    """
    jobs = Jobs(count)
    try:
        yield jobs
    finally:
        jobs.close()


def serve(pipe: Connection) -> None:
    """What each process does: receives a run, makes it, and answers."""
    sys.stdout = sys.stderr  # what a run prints is not what the command prints
    while True:
        job = json.loads(pipe.recv_bytes())
        pipe.send_bytes(json.dumps(make(job)).encode())


def make(job: TuningJob) -> str:
    """Makes a run, or continues it.

    Args:
        job: The run.

    Returns:
        Why it failed; an empty text if it is finished.

    Raises:
        UsageError: The run cannot start.
    """
    from consort.experiment.preparation import prepare_run
    from consort.experiment.run_folder import written_recipe

    try:
        recipe = written_recipe(job["recipe"], job["algorithm"])
        folder, data = Path(job["folder"]), job["data"]
        data_folder = Path(data) if data else None
        prepare_run(recipe, job["algorithm"], job["seed"], folder, data_folder).go()
    except (Failure, UsageError) as error:
        return str(error)
    return ""
