"""Plots for algorithms with several task heads: task weights, and the updates they use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from consort.report.drawing import figure, height_of
from consort.report.heatmaps import Rounds, cells, client_map, numbers_of
from consort.report.html import Figure, Html, label, plot
from consort.report.numbers import natural
from consort.results.measurements import Notes
from consort.results.result import Result

WEIGHT, TAKEN = "task_weight", "updates_taken"

WEIGHT_TITLE = "Weight of each task in a training step (λ)"
WEIGHT_NOTE = (
    "The weight of each task's gradient, the mean over clients and over the steps of a round; for "
    "signatures, the weight of detect is λ in the FedMH paper."
)
_TAKEN_NOTE = (
    "Counts over all rounds and clients. A number k means the sum of the updates of the first k "
    "clients; 0 means that the head was not changed after local training."
)
_MANY_CELLS = 12


def head_pictures(run: Result) -> Iterator[Html]:
    """The plots of what a run recorded about its heads; constant weights are left out."""
    searched = {task: run.notes(TAKEN)[task] for task in _tasks(run, TAKEN)}
    if len(searched) == 2:
        yield plot("Combinations of updates", taken_together(searched), _TAKEN_NOTE)
    for task, rounds in searched.items():
        counted = {
            r: {c: value + 1 for c, value in clients.items()} for r, clients in rounds.items()
        }
        title = f"Updates used for the head of {task}"
        yield _over_time(title, counted, "updates", _most(rounds))
    for task in _tasks(run, WEIGHT):
        rounds = run.notes(WEIGHT)[task]
        if len({weight for clients in rounds.values() for weight in clients.values()}) > 1:
            yield _over_time(f"Weight of {task} in a training step", rounds, "weight", 1)


def _tasks(run: Result, name: str) -> list[str]:
    """The tasks for which a number was recorded, in their own order."""
    noted = run.notes(name)
    return [task for task in run.tasks if task in noted]


def _over_time(title: str, rounds: Rounds, what: str, most: float) -> Html:
    clients = sorted({c for values in rounds.values() for c in values}, key=natural)
    return plot(f"{title}, by client and round", client_map(rounds, clients, what, most))


def _most(rounds: Rounds) -> int:
    """The largest number of updates: one per client."""
    return max(map(len, rounds.values()))


def taken_together(taken: Notes) -> Figure:
    """How often each combination of sums of updates was used for two heads."""
    down, across = taken
    pairs = Counter(
        (int(value) + 1, int(taken[across][round_][client]) + 1)
        for round_, clients in taken[down].items()
        for client, value in clients.items()
    )
    names = list(map(str, range(_most(taken[down]) + 1)))
    counts = [[pairs[row, column] for column in range(len(names))] for row in range(len(names))]
    hover = f"{label(down)} %{{y}}, {label(across)} %{{x}}: used"
    trace = cells(names, names) | numbers_of(counts, hover)
    if len(names) <= _MANY_CELLS:
        trace["texttemplate"] = "%{z}"
    axis = {"type": "category", "showgrid": False}
    return figure(
        [trace],
        f"updates for the head of {across}",
        f"updates for the head of {down}",
        height_of(2 * len(names)),
        xaxis=axis,
        yaxis=axis | {"autorange": "reversed"},
    )
