"""Whole runs side by side on a Ray cluster."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from consort.engines.ray import connected
from consort.errors import Failure
from consort.experiment.jobs import TuningJob, make


class RayJobs:
    """Tasks of a Ray cluster that make runs; a run whose node dies goes on at another one.

    All nodes must see the folder of the runs and the data under the same paths.

    Args:
        count: How many runs are made at the same time.
        threads: How many cores each of them has.
        address: Of the cluster; without it, one is started on this machine.

    Raises:
        UsageError: Ray is not installed.
        Failure: The cluster does not answer.
    """

    def __init__(self, count: int, threads: int, address: str | None) -> None:
        self._ray = connected(address, count * threads)
        self._make = self._ray.remote(num_cpus=threads, max_retries=3)(_made)
        self._count = count
        self._running: deque[tuple[TuningJob, Any]] = deque()

    def run(self, jobs: Sequence[TuningJob]) -> Iterator[str]:
        """Makes runs, or continues them.

        Args:
            jobs: The runs.

        Yields:
            For every run in turn why it failed; an empty text if it is finished.

        Raises:
            Failure: A run was lost several times.
        """
        waiting = deque(jobs)
        answers: dict[int, str] = {}
        try:
            for number in range(len(jobs)):
                while number not in answers:
                    while waiting and len(self._running) < self._count:
                        job = waiting.popleft()
                        self._running.append((job, self._make.remote(json.dumps(job))))
                    answers |= self._collected(jobs)
                yield answers[number]
        finally:
            self.close()

    def _collected(self, jobs: Sequence[TuningJob]) -> dict[int, str]:
        """The answers of the runs that have ended, by the number of the run."""
        ready, _ = self._ray.wait([task for _, task in self._running])
        found = {}
        for job, task in [(job, task) for job, task in self._running if task in ready]:
            self._running.remove((job, task))
            try:
                found[next(n for n, one in enumerate(jobs) if one is job)] = self._ray.get(task)
            except self._ray.exceptions.RayTaskError:
                raise
            except self._ray.exceptions.RayError as error:
                raise Failure(
                    f"{job['folder']}: the Ray worker that made this run died; nothing is lost: "
                    "repeat the command to continue"
                ) from error
        return found

    def close(self) -> None:
        """Ends all runs, also in the middle."""
        for _, task in self._running:
            self._ray.cancel(task, force=True)
        self._running.clear()


def _made(job: str) -> str:
    """What a worker does; only texts travel."""
    return make(json.loads(job))


@contextmanager
def ray_opened(count: int, threads: int, address: str | None) -> Iterator[RayJobs]:
    """A Ray cluster for runs, which end with the context.

    Args:
        count: How many at the same time.
        threads: How many cores each of them has.
        address: Of the cluster; without it, one is started on this machine.
    """
    jobs = RayJobs(count, threads, address)
    try:
        yield jobs
    finally:
        jobs.close()
