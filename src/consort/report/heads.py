"""Pictures of algorithms with several heads: what tasks weigh, and whose updates are taken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from consort.report.drawing import figure, height_of
from consort.report.html import Figure, Html, label, plot
from consort.report.maps import Rounds, cells, client_map, numbers_of
from consort.report.numbers import natural
from consort.results.measurements import Notes
from consort.results.result import Result

WEIGHT, TAKEN = "task_weight", "updates_taken"

WEIGHT_TITLE = "Weight of each task in a training step (λ)"
WEIGHT_NOTE = (
    "The mean over clients, and over the steps of a round, of what each task's gradient counts; "
    "with signatures, the weight of detect is λ of the FedMH paper."
)
_TAKEN_NOTE = (
    "How often, over all rounds and clients. A number k is the sum of the updates of the first "
    "k clients; 0 is a head that stayed as local training left it."
)
_MANY_CELLS = 12


def head_pictures(run: Result) -> Iterator[Html]:
    """What a run noted about its heads, if it did; weights that never change have no map."""
    searched = {task: run.notes(TAKEN)[task] for task in _tasks(run, TAKEN)}
    if len(searched) == 2:
        yield plot("Which updates were taken together", taken_together(searched), _TAKEN_NOTE)
    for task, rounds in searched.items():
        counted = {
            r: {c: value + 1 for c, value in clients.items()} for r, clients in rounds.items()
        }
        title = f"Updates taken into the head of {task}"
        yield _over_time(title, counted, "updates", _most(rounds))
    for task in _tasks(run, WEIGHT):
        rounds = run.notes(WEIGHT)[task]
        if len({weight for clients in rounds.values() for weight in clients.values()}) > 1:
            yield _over_time(f"Weight of {task} in a step", rounds, "weight", 1)


def _tasks(run: Result, name: str) -> list[str]:
    """The tasks of which something was noted, in their own order."""
    noted = run.notes(name)
    return [task for task in run.tasks if task in noted]


def _over_time(title: str, rounds: Rounds, what: str, most: float) -> Html:
    clients = sorted({c for values in rounds.values() for c in values}, key=natural)
    return plot(f"{title}, by client and round", client_map(rounds, clients, what, most))


def _most(rounds: Rounds) -> int:
    """How many updates there were to take, at most: one of every client."""
    return max(map(len, rounds.values()))


def taken_together(taken: Notes) -> Figure:
    """How often which sums of updates were taken for two heads at once."""
    down, across = taken
    pairs = Counter(
        (int(value) + 1, int(taken[across][round_][client]) + 1)
        for round_, clients in taken[down].items()
        for client, value in clients.items()
    )
    names = list(map(str, range(_most(taken[down]) + 1)))
    counts = [[pairs[row, column] for column in range(len(names))] for row in range(len(names))]
    hover = f"{label(down)} %{{y}}, {label(across)} %{{x}}: taken"
    trace = cells(names, names) | numbers_of(counts, hover)
    if len(names) <= _MANY_CELLS:
        trace["texttemplate"] = "%{z}"
    axis = {"type": "category", "showgrid": False}
    return figure(
        [trace],
        f"updates in the head of {across}",
        f"in the head of {down}",
        height_of(2 * len(names)),
        xaxis=axis,
        yaxis=axis | {"autorange": "reversed"},
    )
