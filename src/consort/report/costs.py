"""Plots of the cost of training: bytes, seconds and operations."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from statistics import fmean

from consort.report.drawing import MANY_CLIENTS, Trace, colour, figure, over_rounds
from consort.report.html import Figure, label
from consort.report.numbers import natural
from consort.report.run_set import RunSet
from consort.results.result import Direction, Result
from consort.results.table import MIB

WAYS: tuple[Direction, Direction] = ("up", "down")

_USUAL_ROLES = ["encoder", "decoders", "heads", "buffers"]


def roles(runs: Iterable[Result]) -> list[str]:
    """The roles of the tensors that were sent, the usual roles first."""
    found = {role for run in runs for way in WAYS for role in run.bytes(way)}
    usual = [role for role in _USUAL_ROLES if role in found]
    return usual + sorted(found.difference(usual))


def traffic_by_role(run_set: RunSet) -> Figure:
    """What all clients together sent and received in the whole run, by role."""
    bars = [(algorithm, way) for algorithm in run_set.groups for way in WAYS]
    names = [
        way if run_set.one_algorithm else f"{label(algorithm)}, {way}" for algorithm, way in bars
    ]
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "name": label(role),
            "y": names,
            "x": [role_mib(run_set, algorithm, way, role) for algorithm, way in bars],
            "marker": {"color": colour(place)},
            "hovertemplate": "%{y}: %{x:,.4~g} MiB",
        }
        for place, role in enumerate(roles(run_set.runs))
    ]
    height = 140 + 28 * len(bars)
    axis = {"autorange": "reversed"}
    return figure(traces, "MiB", "", height, barmode="stack", yaxis=axis, bargap=0.25)


def role_mib(run_set: RunSet, algorithm: str, way: Direction, role: str) -> float:
    """The MiB of a role in the whole run, the mean over seeds.

    Args:
        run_set: The runs.
        algorithm: The algorithm.
        way: `up` or `down`.
        role: The role of the tensors, such as `encoder`.
    """
    return run_set.over_seeds(algorithm, lambda run: run.bytes(way).get(role, 0) / MIB).mean


def traffic_per_round(run: Result, way: Direction) -> Figure:
    """The traffic in one direction in every round of one run, by role."""
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


def traffic_compared(run_set: RunSet) -> Figure:
    """The traffic in both directions in every round, one line per algorithm."""

    def sizes(run: Result) -> dict[int, float]:
        up, down = (run.bytes(way, "round") for way in WAYS)
        return {r: (up.get(r, 0) + down.get(r, 0)) / MIB for r in run.per_round("seconds")}

    return _lines(run_set, sizes, "MiB")


def seconds_per_round(run_set: RunSet) -> Figure:
    """The duration of the rounds, without evaluation."""
    return _lines(run_set, lambda run: run.per_round("seconds"), "seconds")


def _lines(run_set: RunSet, measure: Callable[[Result], Mapping[int, float]], y: str) -> Figure:
    traces = []
    for algorithm, runs in run_set.groups.items():
        points = _mean_of(list(map(measure, runs)))
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers" if len(points) <= 25 else "lines",
                "name": label(algorithm),
                "x": list(points),
                "y": list(points.values()),
                "line": {"color": run_set.colours[algorithm], "width": 2},
                "marker": {"size": 5},
                "hovertemplate": "round %{x}: %{y:,.4~g} " + y,
            }
        )
    return over_rounds(traces, y, yaxis={"rangemode": "tozero"})


def _mean_of(series: list[Mapping[int, float]]) -> dict[int, float]:
    shared = sorted(set.intersection(*map(set, series)))
    return {round_: fmean(values[round_] for values in series) for round_ in shared}


def seconds_per_client(run_set: RunSet) -> Figure:
    """The CPU time of every client in the whole run; for many clients, its distribution."""
    if len(run_set.first.clients) > MANY_CLIENTS:
        return _client_boxes(run_set)
    traces: list[Trace] = []
    for algorithm, runs in run_set.groups.items():
        seconds = {client: fmean(all_) for client, all_ in _client_seconds(runs).items()}
        clients = sorted(seconds, key=natural)
        traces.append(
            {
                "type": "bar",
                "name": label(algorithm),
                "x": [label(client) for client in clients],
                "y": [seconds[client] for client in clients],
                "marker": {"color": run_set.colours[algorithm]},
                "hovertemplate": "%{x}: %{y:,.4~g} seconds",
            }
        )
    return figure(traces, "", "seconds", barmode="group", xaxis={"type": "category"})


def _client_boxes(run_set: RunSet) -> Figure:
    boxes = [
        {
            "type": "box",
            "orientation": "h",
            "name": label(algorithm),
            "x": [value for values in _client_seconds(runs).values() for value in values],
            "boxpoints": False,
            "marker": {"color": run_set.colours[algorithm]},
        }
        for algorithm, runs in run_set.groups.items()
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


def operations_per_round(run_set: RunSet) -> Figure:
    """The operations of a client per round, where they were counted: one bar per algorithm."""
    counted = [name for name, runs in run_set.groups.items() if all(r.client_flops() for r in runs)]
    bars: Trace = {
        "type": "bar",
        "orientation": "h",
        "y": list(map(label, counted)),
        "x": [run_set.over_seeds(name, client_gflops).mean for name in counted],
        "marker": {"color": [run_set.colours[name] for name in counted]},
        "texttemplate": "%{x:,.3~g}",
        "hovertemplate": "%{y}: %{x:,.4~g} GFLOPs<extra></extra>",
    }
    axis = {"autorange": "reversed", "type": "category"}
    height = 100 + 40 * len(counted)
    return figure([bars], "GFLOPs of a client", "", height, yaxis=axis, bargap=0.25)


def client_gflops(run: Result) -> float:
    """GFLOPs of a client per round, the mean over clients; NaN if they were not counted."""
    flops = run.client_flops()
    return sum(flops.values()) / len(flops) / run.rounds_done / 1e9 if flops else math.nan
