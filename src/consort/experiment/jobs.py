"""Whole runs side by side, in processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Queue
from typing import Any, Protocol, TypedDict

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

    Args:
        count: How many runs are made at the same time.
    """

    def __init__(self, count: int) -> None:
        code = f"from {__name__} import serve; serve()"
        command = [sys.executable, "-c", code]
        self._processes = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(count)
        ]
        self._idle: Queue[subprocess.Popen[str]] = Queue()
        for process in self._processes:
            self._idle.put(process)

    def run(self, jobs: Sequence[TuningJob]) -> Iterator[str]:
        """Makes runs, or continues them.

        Args:
            jobs: The runs.

        Yields:
            For every run in turn why it failed; an empty text if it is finished.

        Raises:
            Failure: A process died.
        """
        with ThreadPoolExecutor(len(self._processes)) as threads:
            answered = 0
            try:
                for answer in threads.map(self._one, jobs):
                    answered += 1
                    yield answer
            finally:
                if answered < len(jobs):  # otherwise threads would wait for runs nobody wants
                    self.close()

    def _one(self, job: TuningJob) -> str:
        process = self._idle.get()
        if process.stdin is None or process.stdout is None:
            raise Failure("the processes of the search have ended")
        try:
            process.stdin.write(json.dumps(job) + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        except (BrokenPipeError, ValueError):
            answer = ""
        finally:
            self._idle.put(process)
        if not answer:
            raise Failure(
                f"{job['folder']}: the process that made this run died; nothing is lost: repeat "
                "the command to continue"
            )
        return str(json.loads(answer))

    def close(self) -> None:
        """Ends all processes, also in the middle of a run."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe:
                    with suppress(OSError):  # what was not read by a process that died
                        pipe.close()


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


def serve() -> None:
    """What each process does: reads a run per line, makes it, and answers with a line."""
    out, sys.stdout = sys.stdout, sys.stderr  # nothing that a run prints gets between answers
    for line in sys.stdin:
        print(json.dumps(make(json.loads(line))), file=out, flush=True)


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
