"""The report: one page about one run, or a comparison of several."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from consort.errors import UsageError
from consort.report import data_overview
from consort.report.algorithm_notes import attention_between_clients, model_use, other_notes
from consort.report.client_strip import client_strip, strip_meaning
from consort.report.costs import (
    WAYS,
    operations_per_round,
    seconds_per_client,
    seconds_per_round,
    traffic_by_role,
    traffic_compared,
    traffic_per_round,
)
from consort.report.curves import band_meaning, client_spread, curves
from consort.report.document import write_page
from consort.report.gain import gain
from consort.report.headline import headline, headline_tiles
from consort.report.html import Content, Html, details, grid, join, plot, properties, tag
from consort.report.numbers import words
from consort.report.run_set import RunSet
from consort.report.tables import client_table, run_table, task_table, time_table, traffic_table
from consort.report.verification import verification
from consort.results.claims import Verdict
from consort.results.mixing import unlike_settings
from consort.results.result import Result
from consort.results.table import compare_table

if TYPE_CHECKING:
    from consort.results.table import Published

_SPLITS = ("test", "validation")
_WAYS = {"up": "sent by clients", "down": "received by clients"}
_COUNTED = "Matrix products, convolutions and attention; the mean over clients and seeds."
DRAWN = frozenset(
    {"Depth", "Edges", "Instances", "KeyPoints", "Normals", "Panoptic", "Saliency", "Segmentation"}
)
"""Kinds of tasks that can be drawn; without them, PyTorch need not be loaded."""


def write_report(
    results: Sequence[Result],
    path: Path,
    verdicts: Sequence[Verdict] = (),
    published: Sequence[Published] = (),
) -> Path:
    """Writes a report on runs into one self-contained HTML file.

    Args:
        results: The runs, at least one.
        path: The file to write.
        verdicts: The outcomes of the recipe's claims.
        published: Numbers from papers.

    Returns:
        The path.

    Raises:
        UsageError: If there are no runs.
        Failure: If the file cannot be written.
    """
    if not results:
        raise UsageError(f"{path}: a report needs at least one run")
    run_set = RunSet.of(results)
    sections: dict[str, Content] = {
        "Summary": _summary(run_set, published),
        "Claims": _claims(verdicts),
        "Tasks": task_table(run_set),
        "Gain over local training": gain(run_set),
        "Predictions": _predictions(run_set),
        "Verification": verification(run_set),
        "Learning curves": _curves(run_set),
        "Clients": _clients(run_set),
        "Model assignment": model_use(run_set),
        "Attention between clients": attention_between_clients(run_set),
        "Algorithm diagnostics": other_notes(run_set),
        "Communication": _traffic(run_set),
        "Time": _time(run_set),
        "Federation": _federation(run_set),
        "Settings": _settings(run_set),
    }
    return write_page(path, _title(run_set), _subtitle(run_set), sections)


def _predictions(run_set: RunSet) -> Html:
    if DRAWN.isdisjoint(task.get("kind") for task in run_set.tasks.values()):
        return join([])
    from consort.report.examples import examples

    return examples(run_set)


def _title(run_set: RunSet) -> str:
    titles = dict.fromkeys(str(run.about["title"]) for run in run_set.runs)
    title = " · ".join(filter(None, titles)) or "A federation"
    return f"{title}: {run_set.first.algorithm}" if run_set.one_algorithm else title


def _subtitle(run_set: RunSet) -> str:
    first = run_set.first
    seeds = {run.seed for run in run_set.runs}
    done = max(run.rounds_done for run in run_set.runs)
    planned = max(run.about["rounds"] for run in run_set.runs)
    facts = [
        _some(len(seeds), "seed") if len(seeds) > 1 else f"seed {first.seed}",
        _some(len(first.clients), "client"),
        _some(len(run_set.tasks), "task"),
        _some(done, "round") if done == planned else f"{done} of {planned} rounds",
    ]
    if not run_set.one_algorithm:
        facts.insert(0, _some(len(run_set.groups), "algorithm"))
    return " · ".join(facts)


def _some(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _summary(run_set: RunSet, published: Sequence[Published]) -> Html:
    lines = compare_table(run_set.runs, published)
    table = headline_tiles(lines) if run_set.one_algorithm else headline(lines)
    about = {
        algorithm: "{kind}: {description} The {reports} model is reported.".format(**runs[0].about)
        for algorithm, runs in run_set.groups.items()
    }
    mixed = (
        tag("p", f"These runs do not belong together: {text}.", class_="warning")
        for text in unlike_settings(run_set.runs)
    )
    return join([*mixed, table, properties(about)])


def _claims(verdicts: Sequence[Verdict]) -> Html:
    return join(
        tag(
            "div",
            tag("span", verdict.outcome, class_=f"verdict {verdict.outcome}"),
            tag("code", verdict.claim),
            tag("p", verdict.detail),
            class_="claim",
        )
        for verdict in verdicts
    )


def _curves(run_set: RunSet) -> Html:
    parts: list[Html] = [tag("p", band_meaning(run_set), class_="note")]
    for task, about in run_set.tasks.items():
        others = {s.metric for run in run_set.runs for s in run.series if s.task == task}
        parts.append(_metric_curves(run_set, task, about["metric"]))
        rest = sorted(others - {about["metric"]})
        if rest:
            more = (_metric_curves(run_set, task, metric) for metric in rest)
            parts.append(details(f"More metrics of {task}: {', '.join(map(words, rest))}", *more))
    return join(parts)


def _metric_curves(run_set: RunSet, task: str, metric: str) -> Html:
    measured = {s.split for run in run_set.runs for s in run.series if s[:2] == (task, metric)}
    return grid(
        *(
            plot(f"{task}: {split} {words(metric)}", curves(run_set, task, metric, split))
            for split in _SPLITS
            if split in measured
        )
    )


def _clients(run_set: RunSet) -> Html:
    parts = [
        grid(
            *(
                plot(f"{t}: distribution over clients", client_spread(run_set, t))
                for t in run_set.tasks
            )
        )
    ]
    if not run_set.one_algorithm:
        strips = (
            (f"{task}: single clients", client_strip(run_set, task)) for task in run_set.tasks
        )
        parts.append(grid(*(plot(title, strip, strip_meaning(run_set)) for title, strip in strips)))
    return join([*parts, client_table(run_set)])


def _traffic(run_set: RunSet) -> Html:
    if not any(run.value("bytes") for run in run_set.runs):
        return tag("p", "No tensors were sent.")
    if run_set.one_algorithm:
        rounds = [
            plot(f"Per round, {_WAYS[way]}", traffic_per_round(run_set.first, way)) for way in WAYS
        ]
    else:
        rounds = [plot("Per round, both directions", traffic_compared(run_set))]
    total = plot("Whole run, all clients", traffic_by_role(run_set))
    return join([grid(total, *rounds), traffic_table(run_set)])


def _time(run_set: RunSet) -> Html:
    operations = operations_per_round(run_set)
    pictures = grid(
        plot("Duration per round", seconds_per_round(run_set)),
        plot("CPU time per client, whole run", seconds_per_client(run_set)),
        plot("Operations per client and round", operations, _COUNTED)
        if operations["data"][0]["x"]
        else None,
    )
    return join([pictures, time_table(run_set)])


def _federation(run_set: RunSet) -> Html:
    first = run_set.first
    held = {task for client in first.clients.values() for task in client["tasks"]}
    tasks = {task: about for task, about in first.tasks.items() if task in held}
    partitions = {run.about["partition"] for run in run_set.runs}
    note = f"Partition {first.about['partition']}"
    if len(partitions) > 1:
        note += f" of seed {first.seed}; other runs partition the data differently"
    return join(
        [
            data_overview.pictures(first.clients, tasks),
            data_overview.tables(first.clients, tasks),
            tag("p", f"{note}.", class_="note"),
        ]
    )


def _settings(run_set: RunSet) -> Html:
    first = run_set.first
    recipes: dict[str, str] = {}
    for algorithm, runs in run_set.groups.items():
        recipes.setdefault(json.dumps(runs[0].about["recipe"], indent=2), algorithm)
    return join(
        [
            *(
                details(
                    "Recipe" if len(recipes) == 1 else f"Recipe of {algorithm}", tag("pre", text)
                )
                for text, algorithm in recipes.items()
            ),
            details("Environment", properties(first.about["environment"])),
            details("Runs", run_table(run_set)),
        ]
    )
