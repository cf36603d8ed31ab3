"""The main results: tiles for one algorithm, a comparison table for several."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from consort.report.html import Cell, Columns, Html, table, tiles
from consort.report.numbers import amount, amount_text, score, summary, words
from consort.results.summary import Summary
from consort.results.table import Line, last_rounds


def headline_tiles(lines: Sequence[Line]) -> Html:
    """The main numbers of one algorithm."""
    traffic = f"{amount_text(lines[0].mib_per_round.mean)} MiB"
    time = f"{amount_text(lines[0].seconds_per_round.mean)} s"
    return tiles(
        [
            *(fact for line in lines for fact in _facts(line, last_rounds(lines))),
            ("Traffic per round", traffic, "up and down, all clients"),
            ("Time per round", time, "without evaluation"),
        ]
    )


def _facts(line: Line, last: str) -> Iterator[tuple[str, str, str]]:
    metric = f"Test {words(line.metric)}"
    yield metric, _text(line.last), f"mean over clients, {last}"
    yield f"{metric}, best round", _text(line.best), "best round on validation data"
    yield (
        f"{metric}, worst client",
        _text(line.worst),
        f"standard deviation of clients {_text(line.client_std)}",
    )
    if line.tuned:
        yield (
            f"{metric}, fine-tuned",
            _text(line.tuned),
            f"after fine-tuning on each client, {last}",
        )
    if line.published is not None:
        yield (
            f"{metric}, published",
            _text(Summary(line.published, 0, 1)),
            "as reported in the paper",
        )


def headline(lines: Sequence[Line]) -> Html:
    """The comparison table: one row per algorithm and metric."""
    metrics = list(dict.fromkeys(line.metric for line in lines))
    last = last_rounds(lines).capitalize()
    columns: Columns[Line] = {
        "Algorithm": lambda line: line.algorithm,
        "Metric": lambda line: words(line.metric),
        last: lambda line: summary(line.last, _leads(line, lines, "last")),
        "Best on validation": lambda line: summary(line.best, _leads(line, lines, "best")),
        "Published": lambda line: score(math.nan if line.published is None else line.published),
        "Std over clients": lambda line: summary(line.client_std),
        "Worst client": lambda line: summary(line.worst, _leads(line, lines, "worst")),
        "After fine-tuning": lambda line: _tuned(line, lines),
        "MiB per round": lambda line: amount(line.mib_per_round.mean),
        "Seconds per round": lambda line: amount(line.seconds_per_round.mean),
    }
    empty = {
        *(["Metric"] if len(metrics) == 1 else []),
        *(["Published"] if all(line.published is None for line in lines) else []),
        *(["After fine-tuning"] if not any(line.tuned for line in lines) else []),
    }
    shown = {name: show for name, show in columns.items() if name not in empty}
    rows = sorted(lines, key=lambda line: metrics.index(line.metric))
    what = words(lines[0].metric) if len(metrics) == 1 else "values"
    return table(
        rows, shown, f"Test {what}, mean over clients{_seeds(lines)}. The best values are bold."
    )


def _tuned(line: Line, lines: Sequence[Line]) -> Cell:
    return summary(line.tuned, _leads(line, lines, "tuned")) if line.tuned else score(math.nan)


def _seeds(lines: Sequence[Line]) -> str:
    seeds = max(line.last.n for line in lines)
    return f" ± sample standard deviation over {seeds} seeds" if seeds > 1 else ""


def _leads(line: Line, lines: Sequence[Line], column: str) -> bool:
    found = [getattr(rival, column) for rival in lines if rival.metric == line.metric]
    rivals = [rival.mean for rival in found if rival]
    known = [value for value in rivals if not math.isnan(value)]
    best = max if line.higher_is_better else min
    return len(rivals) > 1 and bool(known) and getattr(line, column).mean == best(known)


def _text(values: Summary) -> str:
    return str(summary(values).text)
