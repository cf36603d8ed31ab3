"""Pictures of what training cost: bytes, seconds and operations."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from statistics import fmean

from consort.report.drawing import MANY_CLIENTS, Trace, colour, figure, over_rounds
from consort.report.html import Figure, label
from consort.report.numbers import natural
from consort.report.study import Study
from consort.results.result import Direction, Result
from consort.results.table import MIB

WAYS: tuple[Direction, Direction] = ("up", "down")

_USUAL_ROLES = ["encoder", "decoders", "heads", "buffers"]


def roles(runs: Iterable[Result]) -> list[str]:
    """The roles that something was sent of, the usual ones first."""
    found = {role for run in runs for way in WAYS for role in run.bytes(way)}
    usual = [role for role in _USUAL_ROLES if role in found]
    return usual + sorted(found.difference(usual))


def traffic_by_role(study: Study) -> Figure:
    """What all clients together sent and received in the whole run."""
    bars = [(algorithm, way) for algorithm in study.groups for way in WAYS]
    names = [
        way if study.one_algorithm else f"{label(algorithm)}, {way}" for algorithm, way in bars
    ]
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "name": label(role),
            "y": names,
            "x": [role_mib(study, algorithm, way, role) for algorithm, way in bars],
            "marker": {"color": colour(place)},
            "hovertemplate": "%{y}: %{x:,.4~g} MiB",
        }
        for place, role in enumerate(roles(study.runs))
    ]
    height = 140 + 28 * len(bars)
    axis = {"autorange": "reversed"}
    return figure(traces, "MiB", "", height, barmode="stack", yaxis=axis, bargap=0.25)


def role_mib(study: Study, algorithm: str, way: Direction, role: str) -> float:
    """What an algorithm sent of a role in the whole run, the mean over seeds."""
    return study.over_seeds(algorithm, lambda run: run.bytes(way).get(role, 0) / MIB).mean


def traffic_per_round(run: Result, way: Direction) -> Figure:
    """What went one way in every round of one run, by role."""
    rounds = sorted(run.per_round("seconds"))
    traces = []
    for place, role in enumerate(roles([run])):
        sizes = run.bytes(way, "round", role)
        traces.append(
            {
                "type": "bar",
                "name": label(role),
                "x": rounds,
                "y": [sizes.get(round_, 0) / MIB for round_ in rounds],
                "marker": {"color": colour(place)},
                "hovertemplate": "round %{x}: %{y:,.4~g} MiB",
            }
        )
    return over_rounds(traces, "MiB", barmode="stack")


def traffic_compared(study: Study) -> Figure:
    """Up and down together in every round, one line per algorithm."""

    def sizes(run: Result) -> dict[int, float]:
        up, down = (run.bytes(way, "round") for way in WAYS)
        return {r: (up.get(r, 0) + down.get(r, 0)) / MIB for r in run.per_round("seconds")}

    return _lines(study, sizes, "MiB")


def seconds_per_round(study: Study) -> Figure:
    """How long the rounds took, without evaluation."""
    return _lines(study, lambda run: run.per_round("seconds"), "seconds")


def _lines(study: Study, measure: Callable[[Result], Mapping[int, float]], y: str) -> Figure:
    traces = []
    for algorithm, runs in study.groups.items():
        points = _mean_of(list(map(measure, runs)))
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers" if len(points) <= 25 else "lines",
                "name": label(algorithm),
                "x": list(points),
                "y": list(points.values()),
                "line": {"color": study.colours[algorithm], "width": 2},
                "marker": {"size": 5},
                "hovertemplate": "round %{x}: %{y:,.4~g} " + y,
            }
        )
    return over_rounds(traces, y, yaxis={"rangemode": "tozero"})


def _mean_of(series: list[Mapping[int, float]]) -> dict[int, float]:
    shared = sorted(set.intersection(*map(set, series)))
    return {round_: fmean(values[round_] for values in series) for round_ in shared}


def seconds_per_client(study: Study) -> Figure:
    """The CPU time of every client in the whole run; of many clients, how these times spread."""
    if len(study.first.clients) > MANY_CLIENTS:
        return _client_boxes(study)
    traces: list[Trace] = []
    for algorithm, runs in study.groups.items():
        seconds = {client: fmean(all_) for client, all_ in _client_seconds(runs).items()}
        clients = sorted(seconds, key=natural)
        traces.append(
            {
                "type": "bar",
                "name": label(algorithm),
                "x": [label(client) for client in clients],
                "y": [seconds[client] for client in clients],
                "marker": {"color": study.colours[algorithm]},
                "hovertemplate": "%{x}: %{y:,.4~g} seconds",
            }
        )
    return figure(traces, "", "seconds", barmode="group", xaxis={"type": "category"})


def _client_boxes(study: Study) -> Figure:
    boxes = [
        {
            "type": "box",
            "orientation": "h",
            "name": label(algorithm),
            "x": [value for values in _client_seconds(runs).values() for value in values],
            "boxpoints": False,
            "marker": {"color": study.colours[algorithm]},
        }
        for algorithm, runs in study.groups.items()
    ]
    height = 100 + 40 * len(boxes)
    axis = {"autorange": "reversed"}
    return figure(boxes, "seconds of a client", "", height, yaxis=axis, showlegend=False)


def _client_seconds(runs: Iterable[Result]) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {}
    for run in runs:
        for client, value in run.client_seconds().items():
            seconds.setdefault(client, []).append(value)
    return seconds


def operations_per_round(study: Study) -> Figure:
    """What a client computed in a round, where that was counted: one bar per algorithm."""
    counted = [name for name, runs in study.groups.items() if all(r.client_flops() for r in runs)]
    bars: Trace = {
        "type": "bar",
        "orientation": "h",
        "y": list(map(label, counted)),
        "x": [study.over_seeds(name, client_gflops).mean for name in counted],
        "marker": {"color": [study.colours[name] for name in counted]},
        "texttemplate": "%{x:,.3~g}",
        "hovertemplate": "%{y}: %{x:,.4~g} GFLOPs<extra></extra>",
    }
    axis = {"autorange": "reversed", "type": "category"}
    height = 100 + 40 * len(counted)
    return figure([bars], "GFLOPs of a client", "", height, yaxis=axis, bargap=0.25)


def client_gflops(run: Result) -> float:
    """Billions of operations per round, the mean over clients; no number if none were counted."""
    flops = run.client_flops()
    return sum(flops.values()) / len(flops) / run.rounds_done / 1e9 if flops else math.nan
