"""What runs made in Python leave: results, data frames, a report, models; shown in notebooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from consort.core.registry import did_you_mean
from consort.errors import UsageError
from consort.experiment.trained import load_model
from consort.interactive.display import shown
from consort.models.multitask import MultiTaskModel
from consort.report.page import write_report
from consort.results.claims import Verdict
from consort.results.comparison import judge
from consort.results.frames import frame_of, history_frame
from consort.results.layout import Format, laid_out
from consort.results.paper_table import Over, paper_table
from consort.results.result import Result
from consort.results.significance import TestName
from consort.run.run import Run


@dataclass(frozen=True)
class Outcome:
    """One or several finished runs, as `consort.train` and `consort.compare` return them.

    In a notebook, the last line of a cell shows it as a table with learning curves.

    Examples:
        >>> import consort
        >>> recipe = consort.Recipe(
        ...     clients=2,
        ...     data={"name": "synthetic_vectors", "examples": 60},
        ...     model={"name": "mlp"},
        ...     run={"rounds": 1},
        ...     algorithms={"fedavg": {}, "local_only": {}},
        ... )
        >>> outcome = consort.compare(recipe, progress=False)
        >>> list(outcome.runs)
        [('fedavg', 0), ('local_only', 0)]
        >>> [result.value("bytes_up") > 0 for result in outcome.results]
        [True, False]
    """

    folder: Path
    """Where the runs are: `<algorithm>/seed-<seed>` below it."""
    runs: Mapping[tuple[str, int], Run]
    """The runs by the name of the algorithm and the seed."""
    claims: Sequence[str] = ()
    """What was expected of them."""

    @cached_property
    def results(self) -> list[Result]:
        """What every run measured."""
        return [Result.load(run.folder) for run in self.runs.values() if run.folder]

    @property
    def result(self) -> Result:
        """What the run measured, if there is one only.

        Raises:
            UsageError: There are several runs.
        """
        if len(self.results) > 1:
            raise UsageError("there are several runs: take one of `results`")
        return self.results[0]

    @property
    def run(self) -> Run:
        """The run, if there is one only.

        Raises:
            UsageError: There are several runs.
        """
        if len(self.runs) > 1:
            raise UsageError("there are several runs: take one of `runs`")
        return next(iter(self.runs.values()))

    def frame(self) -> Any:
        """All rows of all histories as one data frame of pandas or polars.

        Raises:
            UsageError: Neither is installed.
        """
        return history_frame(self.results)

    def values(self, *names: str) -> Any:
        """One line per run with the values that tables and claims can name, as a data frame.

        Args:
            names: The values, such as `accuracy` or `bytes`; all that every run has, if none.

        Raises:
            UsageError: A value was not measured, or neither pandas nor polars is installed.
        """
        every = [result.metric_names() for result in self.results]
        chosen = names or [name for name in every[0] if all(name in other for other in every)]
        return frame_of(
            {
                "algorithm": [result.algorithm for result in self.results],
                "seed": [result.seed for result in self.results],
                **{name: [result.value(name) for result in self.results] for name in chosen},
            }
        )

    def table(
        self,
        format: Format = "text",
        metrics: Sequence[str] = (),
        test: TestName | None = None,
        over: Over = "seeds",
        against: str = "",
    ) -> str:
        """The table that `consort table` prints.

        Args:
            format: `text`, `csv`, `latex` or `markdown`.
            metrics: The values in its columns; if empty, the metrics that stand for tasks.
            test: `t`, `wilcoxon` or `friedman`.
            over: What is paired in the test: `seeds` or `clients`.
            against: The algorithm that others are compared with; if empty, the best.
        """
        return laid_out(paper_table({"": self.results}, metrics, test, over, against), format)

    def verdicts(self) -> list[Verdict]:
        """Which claims hold."""
        folders = [result.folder for result in self.results]
        return judge(self.claims, list(dict.fromkeys(name for name, _ in self.runs)), folders)

    def report(self, path: Path | str | None = None) -> Path:
        """Writes the report as one HTML page.

        Args:
            path: The file; `report.html` in the folder of the runs, if not given.

        Returns:
            The file.
        """
        file = Path(path) if path else self.folder / "report.html"
        return write_report(self.results, file, self.verdicts())

    def model(self, client: str, algorithm: str = "", seed: int | None = None) -> MultiTaskModel:
        """A client's trained model, as the algorithm reports it.

        Args:
            client: The name of the client.
            algorithm: Which run, if there are several algorithms.
            seed: Which run, if there are several seeds; the first, if not given.

        Raises:
            UsageError: There is no such run or client.
        """
        names = list(dict.fromkeys(name for name, _ in self.runs))
        if not algorithm and len(names) > 1:
            raise UsageError(f"name one of the algorithms: {', '.join(names)}")
        name = algorithm or names[0]
        if name not in names:
            raise UsageError(f"there is no run of {did_you_mean(name, names)}")
        seeds = [number for other, number in self.runs if other == name]
        if seed is not None and seed not in seeds:
            raise UsageError(f"{name} has no seed {seed}; there are {', '.join(map(str, seeds))}")
        return load_model(self.runs[name, seeds[0] if seed is None else seed], client)

    def _repr_html_(self) -> str:
        return shown(self.results)
