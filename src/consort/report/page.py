"""The report: one page about one run, or about several side by side."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from consort.errors import UsageError
from consort.report import holdings
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
from consort.report.noted import model_use, other_notes, taken_from_others
from consort.report.numbers import words
from consort.report.strip import client_strip, strip_meaning
from consort.report.study import Study
from consort.report.tables import client_table, run_table, task_table, time_table, traffic_table
from consort.report.verified import verification
from consort.results.claims import Verdict
from consort.results.result import Result
from consort.results.table import compare_table

if TYPE_CHECKING:
    from consort.results.published import Published

_SPLITS = ("test", "validation")
_COUNTED = "Of products of matrices, convolutions and attention, the mean over clients and seeds."
DRAWN = frozenset(
    {"Depth", "Edges", "Instances", "KeyPoints", "Normals", "Panoptic", "Saliency", "Segmentation"}
)
"""Kinds of tasks that have a look: to draw others' pages nothing as slow as PyTorch is loaded."""


def write_report(
    results: Sequence[Result],
    path: Path,
    verdicts: Sequence[Verdict] = (),
    published: Sequence[Published] = (),
) -> Path:
    """Writes everything these runs measured into one self-contained HTML file."""
    if not results:
        raise UsageError(f"{path}: a report needs at least one run")
    study = Study.of(results)
    sections: dict[str, Content] = {
        "Summary": _summary(study, published),
        "Claims": _claims(verdicts),
        "Tasks": task_table(study),
        "Gain": gain(study),
        "Pictures": _pictures(study),
        "Verification": verification(study),
        "Curves": _curves(study),
        "Clients": _clients(study),
        "Who uses which model": model_use(study),
        "Taken from others": taken_from_others(study),
        "Noted by the algorithm": other_notes(study),
        "Traffic": _traffic(study),
        "Time": _time(study),
        "Federation": _federation(study),
        "Settings": _settings(study),
    }
    return write_page(path, _title(study), _subtitle(study), sections)


def _pictures(study: Study) -> Html:
    if DRAWN.isdisjoint(task.get("kind") for task in study.tasks.values()):
        return join([])
    from consort.report.examples import examples

    return examples(study)


def _title(study: Study) -> str:
    titles = dict.fromkeys(str(run.about["title"]) for run in study.runs)
    title = " · ".join(filter(None, titles)) or "A federation"
    return f"{title}: {study.first.algorithm}" if study.one_algorithm else title


def _subtitle(study: Study) -> str:
    first = study.first
    seeds = {run.seed for run in study.runs}
    done = max(run.rounds_done for run in study.runs)
    planned = max(run.about["rounds"] for run in study.runs)
    facts = [
        _some(len(seeds), "seed") if len(seeds) > 1 else f"seed {first.seed}",
        _some(len(first.clients), "client"),
        _some(len(study.tasks), "task"),
        _some(done, "round") if done == planned else f"{done} of {planned} rounds",
    ]
    if not study.one_algorithm:
        facts.insert(0, _some(len(study.groups), "algorithm"))
    return " · ".join(facts)


def _some(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _summary(study: Study, published: Sequence[Published]) -> Html:
    lines = compare_table(study.runs, published)
    table = headline_tiles(lines) if study.one_algorithm else headline(lines)
    about = {
        algorithm: "{kind}: {description} The {reports} model is reported.".format(**runs[0].about)
        for algorithm, runs in study.groups.items()
    }
    return join([table, properties(about)])


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


def _curves(study: Study) -> Html:
    parts: list[Html] = [tag("p", band_meaning(study), class_="note")]
    for task, about in study.tasks.items():
        others = {s.metric for run in study.runs for s in run.series if s.task == task}
        parts.append(_metric_curves(study, task, about["metric"]))
        rest = sorted(others - {about["metric"]})
        if rest:
            more = (_metric_curves(study, task, metric) for metric in rest)
            parts.append(details(f"More of {task}: {', '.join(map(words, rest))}", *more))
    return join(parts)


def _metric_curves(study: Study, task: str, metric: str) -> Html:
    measured = {s.split for run in study.runs for s in run.series if s[:2] == (task, metric)}
    return grid(
        *(
            plot(f"{task}: {split} {words(metric)}", curves(study, task, metric, split))
            for split in _SPLITS
            if split in measured
        )
    )


def _clients(study: Study) -> Html:
    parts = [grid(*(plot(f"{t}: the clients", client_spread(study, t)) for t in study.tasks))]
    if not study.one_algorithm:
        strips = ((f"{task}: client by client", client_strip(study, task)) for task in study.tasks)
        parts.append(grid(*(plot(title, strip, strip_meaning(study)) for title, strip in strips)))
    return join([*parts, client_table(study)])


def _traffic(study: Study) -> Html:
    if not any(run.value("bytes") for run in study.runs):
        return tag("p", "Nothing was sent.")
    if study.one_algorithm:
        rounds = [plot(f"Per round, {way}", traffic_per_round(study.first, way)) for way in WAYS]
    else:
        rounds = [plot("Per round, up and down", traffic_compared(study))]
    total = plot("Whole run, all clients", traffic_by_role(study))
    return join([grid(total, *rounds), traffic_table(study)])


def _time(study: Study) -> Html:
    operations = operations_per_round(study)
    pictures = grid(
        plot("Per round", seconds_per_round(study)),
        plot("Per client, whole run", seconds_per_client(study)),
        plot("Operations per round", operations, _COUNTED) if operations["data"][0]["x"] else None,
    )
    return join([pictures, time_table(study)])


def _federation(study: Study) -> Html:
    first = study.first
    held = {task for client in first.clients.values() for task in client["tasks"]}
    tasks = {task: about for task, about in first.tasks.items() if task in held}
    partitions = {run.about["partition"] for run in study.runs}
    note = f"Partition {first.about['partition']}"
    if len(partitions) > 1:
        note += f" of seed {first.seed}; other runs divide the data in another way"
    return join(
        [
            holdings.pictures(first.clients, tasks),
            holdings.tables(first.clients, tasks),
            tag("p", f"{note}.", class_="note"),
        ]
    )


def _settings(study: Study) -> Html:
    first = study.first
    recipes: dict[str, str] = {}
    for algorithm, runs in study.groups.items():
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
            details("Runs", run_table(study)),
        ]
    )
