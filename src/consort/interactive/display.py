"""How notebooks show runs: a table and learning curves, without any script."""

from __future__ import annotations

from collections.abc import Sequence

from consort.report.html import Html, join, tag
from consort.report.numbers import words
from consort.report.svg_curves import svg_curves
from consort.results.result import Result
from consort.results.summary import format_summary, mean
from consort.results.table import by_algorithm, compare_table, last_rounds


def shown(results: Sequence[Result]) -> Html:
    """A table of the results, and a curve of every algorithm for each metric of the tasks.

    Args:
        results: The runs.
    """
    lines = compare_table(results)
    heads = ("algorithm", "metric", last_rounds(lines), "best on validation", "worst client",
             "MiB per round", "s per round")  # fmt: skip
    rows = [
        [line.algorithm, words(line.metric), format_summary(line.last, 3),
         format_summary(line.best, 3), f"{line.worst.mean:.3f}", f"{line.mib_per_round.mean:.2f}",
         f"{line.seconds_per_round.mean:.2f}"]
        for line in lines
    ]  # fmt: skip
    table = tag(
        "table",
        tag("thead", tag("tr", *(tag("th", head) for head in heads))),
        tag("tbody", *(tag("tr", *(tag("td", cell) for cell in row)) for row in rows)),
    )
    metrics = dict.fromkeys(line.metric for line in lines)
    return join([table, *(_curves(results, metric) for metric in metrics)])


def _curves(results: Sequence[Result], metric: str) -> Html:
    curves = {
        name: [
            (float(number), mean(mean(run.by_client(metric, number).values()) for run in runs))
            for number in sorted(set.intersection(*(set(run.evaluated) for run in runs)))
        ]
        for name, runs in by_algorithm(results).items()
    }
    return svg_curves(f"test {words(metric)}", curves)
