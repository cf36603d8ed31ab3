"""An experiment made of objects, as a recipe is one made of names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from consort.interactive.outcome import Outcome
from consort.interactive.running import Algorithms, Clients, compare
from consort.run.observer import Observer
from consort.run.schedule import Schedule


@dataclass(frozen=True)
class Experiment:
    """Clients, algorithms and seeds that belong together, to be run as often as needed.

    Examples:
        >>> import torch
        >>> import consort
        >>> from consort import Classification, Examples, Federation, Member, ModelSpec, Splits
        >>> from consort.algorithms.fedavg import FedAvg
        >>> examples = Examples(torch.eye(4), {"place": torch.arange(4)})
        >>> splits = Splits(examples, examples, examples)
        >>> model = ModelSpec.of({"name": "mlp"})
        >>> member = Member.of({"place": Classification(4)}, model, splits)
        >>> federation = Federation({"bank-1": member, "bank-2": member})
        >>> experiment = consort.Experiment(federation, [FedAvg()], rounds=2, seeds=[0, 1])
        >>> [(result.algorithm, result.seed) for result in experiment.go(progress=False).results]
        [('fedavg', 0), ('fedavg', 1)]
    """

    clients: Clients
    """A federation, or a function that makes the one of a seed."""
    algorithms: Algorithms
    """The algorithms, or a dictionary with their names in tables."""
    rounds: int | Schedule | None = None
    """The number of rounds, or a whole schedule."""
    seeds: Sequence[int] = (0,)
    """The seeds."""
    title: str = ""
    """The title of the report."""
    claims: Sequence[str] = ()
    """What is expected, as in a recipe."""

    def go(
        self,
        folder: Path | str | None = None,
        *,
        workers: int = 1,
        observer: Observer | None = None,
        progress: bool = True,
    ) -> Outcome:
        """Makes all runs, or continues what was interrupted, as `consort.compare` does.

        Args:
            folder: Where the runs are saved; a temporary folder if not given.
            workers: The number of processes.
            observer: Is told how the runs proceed.
            progress: Whether to show a bar or one line per round.

        Returns:
            The finished runs with their results.

        Raises:
            UsageError: A run cannot start, a claim cannot be read, or a folder holds another run.
            Failure: A run failed.
        """
        return compare(
            self.clients,
            self.algorithms,
            self.rounds,
            seeds=self.seeds,
            folder=folder,
            workers=workers,
            observer=observer,
            progress=progress,
            title=self.title,
            claims=self.claims,
        )
