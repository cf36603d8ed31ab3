"""What the command prints: progress bars during a run, tables at its end."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from consort.core.messages import Call, Replies
from consort.errors import ClientFailed, Failure
from consort.report.assignment import idle_models
from consort.report.skew import gini, label_distance
from consort.results.claims import Verdict
from consort.results.result import Result
from consort.results.summary import format_summary
from consort.results.table import Published, compare_table, last_rounds
from consort.run.observer import Observer
from consort.run.round_lines import RoundLines

_COLOURS = {"holds": "green", "fails": "red", "undecided": "yellow"}


class ProgressBars(Observer):
    """Two progress bars for a run: its rounds, and the clients of the current round.

    Args:
        progress: Where the bars are drawn.
        title: The name of the run.
        rounds: The number of rounds planned.
    """

    def __init__(self, progress: Progress, title: str, rounds: int) -> None:
        self.progress = progress
        self.total = rounds
        self.rounds = progress.add_task(title, total=rounds)
        self.clients = progress.add_task("  clients", total=None)
        self._drawn = 0.0

    def round_started(self, round: int, calls: int) -> None:
        """Advances the bar of rounds and restarts the bar of clients."""
        self.progress.update(self.rounds, completed=round - 1)
        self.progress.reset(self.clients, total=calls, description=f"  round {round}")
        self._draw()

    def answered(self, call: Call) -> None:
        """Advances the bar of clients, except for evaluations and calls of a protocol."""
        if not call.evaluation and call.of_algorithm:
            self.progress.advance(self.clients)
            self._draw()

    def evaluated(self, round: int, replies: Replies) -> None:  # noqa: ARG002
        """Completes the round."""
        self.progress.update(self.rounds, completed=round)
        self._draw()

    def failed(self, error: ClientFailed) -> None:
        """Prints the failure at once."""
        self.progress.console.print(f"[yellow]continued without {escape(str(error))}[/yellow]")

    def finished(self) -> None:
        """Completes the bar of rounds and removes the bar of clients."""
        self.progress.update(self.rounds, completed=self.total)
        self.progress.remove_task(self.clients)
        self.progress.refresh()

    def _draw(self) -> None:
        """Redraws, at most ten times a second."""
        now = time.monotonic()
        if now - self._drawn > 0.1:
            self._drawn = now
            self.progress.refresh()


class Screen:
    """Prints progress bars on standard error and results on standard output.

    Args:
        quiet: Print neither progress nor tables.
        as_json: Print results as JSON.
        bars: Whether progress is shown as bars, and not as one line per round; if not given, where
            standard error is a terminal.
    """

    def __init__(self, quiet: bool, as_json: bool, bars: bool | None = None) -> None:
        self.quiet = quiet
        self.as_json = as_json
        self.console = Console(quiet=quiet)
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True, quiet=quiet),
            auto_refresh=False,  # no refresh thread: workers are forked from this process
        )
        self.bars = self.progress.console.is_terminal if bars is None else bars
        self.progress.disable = quiet or not self.bars

    def __enter__(self) -> Screen:
        self.progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.progress.stop()
        if kind is KeyboardInterrupt:
            raise Failure("stopped; nothing is lost: repeat the command to continue")

    def watch(self, name: str, seed: int, rounds: int) -> Observer:
        """An observer that shows the progress of one run.

        Args:
            name: The algorithm.
            seed: The seed of the run.
            rounds: The number of rounds planned.
        """
        if self.quiet:
            return Observer()
        if not self.bars:
            return RoundLines(f"{name}, seed {seed}")
        return ProgressBars(self.progress, f"{name}, seed {seed}", rounds)

    def say(self, text: str) -> None:
        """Prints a line above the bars."""
        self.progress.console.print(escape(text), soft_wrap=True, highlight=False)

    def results(
        self,
        results: Sequence[Result],
        verdicts: Sequence[Verdict],
        published: Sequence[Published],
        page: Path,
    ) -> None:
        """Prints the table of all algorithms, the claims, and the path of the report.

        Args:
            results: The finished runs.
            verdicts: The outcomes of the recipe's claims.
            published: Numbers from papers, shown in a column of their own.
            page: The report.
        """
        if self.as_json:
            print(json.dumps(_as_data(results, verdicts, page), indent=1))
            return
        table = _table(results, published)
        if not self.console.is_terminal:  # in a file, a table need not fit a terminal's width
            natural = self.console.measure(table, options=self.console.options.update(width=999))
            self.console.width = max(self.console.width, natural.maximum)
        self.console.print(table)
        for sentence in idle_models(results):
            self.console.print(f"[yellow]{escape(sentence)}[/yellow]", highlight=False)
        for verdict in verdicts:
            colour = _COLOURS[verdict.outcome]
            self.console.print(
                f"[{colour}]{verdict.outcome:>9}[/{colour}]  {escape(verdict.claim)}  "
                f"[dim]{escape(verdict.detail)}"
            )
        self.console.print(f"report: {page}", soft_wrap=True, highlight=False, markup=False)

    def federation(self, description: Mapping[str, Any], page: Path) -> None:
        """Prints a table of the clients, the skew of their data, and the path of the page.

        Args:
            description: A federation as `run.json` describes it.
            page: The page that `consort inspect` wrote.
        """
        clients = description["clients"]
        if self.as_json:
            print(json.dumps(description, indent=1))
            return
        self.console.print(_clients_table(clients))
        distance = label_distance([client["labels"] for client in clients.values()])
        sizes = [client["train"] for client in clients.values()]
        self.console.print(
            f"{len(clients)} clients, partition {description['partition']}; label skew "
            f"{distance:.2f} (0: all clients have the same label distribution), size skew "
            f"{gini(sizes):.2f} (Gini)",
            highlight=False,
        )
        self.console.print(f"page: {page}", soft_wrap=True, highlight=False, markup=False)


_CAPTION = (
    "last: mean over clients in the {last}; best: in the best round on validation data; "
    "worst: worst client in the {last}; MiB and s: per round"
)
_TUNED = "; tuned: after fine-tuning on each client before the test, in the {last}"


def _table(results: Sequence[Result], published: Sequence[Published]) -> Table:
    lines = compare_table(results, published)
    seeds = len({result.seed for result in results})
    title = escape(results[0].about["title"])
    title += f" ({seeds} seed{'s' if seeds > 1 else ''}, test data)"
    tuned = any(line.tuned for line in lines)
    private = any(line.epsilon is not None for line in lines)
    columns = ["last", "best", "worst", *["tuned"] * tuned, "MiB", "s", *["ε"] * private]
    if published:
        columns.append("paper")
    caption = (_CAPTION + _TUNED * tuned).format(last=last_rounds(lines))
    caption += _deltas(results)
    table = Table(title=title, caption=caption)
    table.add_column("algorithm", no_wrap=True)
    table.add_column("metric", overflow="fold", min_width=6)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    for line in lines:
        cells = [format_summary(summary, 3) for summary in (line.last, line.best)]
        cells.append(f"{line.worst.mean:.3f}")
        if tuned:
            cells.append(format_summary(line.tuned, 3) if line.tuned else "")
        cells += [f"{line.mib_per_round.mean:.2f}", f"{line.seconds_per_round.mean:.2f}"]
        if private:
            cells.append("∞" if line.epsilon is None else f"{line.epsilon:.2f}")
        if published:
            cells.append("" if line.published is None else f"{line.published:.3f}")
        table.add_row(line.algorithm, line.metric, *cells)
    return table


def _deltas(results: Sequence[Result]) -> str:
    """The unit that epsilon protects, the delta that belongs to it, and where noise comes from."""
    private = [result.about for result in results if result.about.get("privacy")]
    if not private:
        return ""
    found = {(about["privacy"]["level"], about["privacy"]["delta"]) for about in private}
    kinds = " or ".join(f"{level} at δ = {delta:g}" for level, delta in sorted(found))
    secret = all(about.get("noise") == "secret" for about in private)
    source = "secret, of the clients" if secret else "from the seed: a simulation"
    return f"; ε: privacy spent per {kinds}; noise: {source}"


_MOST_ROWS = 40


def _clients_table(clients: Mapping[str, Any]) -> Table:
    table = Table("client", "tasks", "model", "parameters", "train", "val", "test", "classes")
    for name, client in list(clients.items())[:_MOST_ROWS]:
        counts = (client["train"], client["validation"], client["test"], len(client["labels"]))
        table.add_row(
            name,
            ", ".join(client["tasks"]),
            client["model"],
            f"{client['parameters']:,}",
            *map(str, counts),
        )
    if len(clients) > _MOST_ROWS:
        table.caption = f"and {len(clients) - _MOST_ROWS} more"
    return table


def _as_data(results: Sequence[Result], verdicts: Sequence[Verdict], page: Path) -> dict[str, Any]:
    return {
        "runs": [
            {
                "algorithm": result.algorithm,
                "seed": result.seed,
                "folder": str(result.folder),
                **{name: result.value(name) for name in result.metric_names()},
            }
            for result in results
        ],
        "claims": [{"claim": v.claim, "outcome": v.outcome, "detail": v.detail} for v in verdicts],
        "report": str(page),
    }
