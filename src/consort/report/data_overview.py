"""The data of a federation: plots and tables, from its description alone."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

from consort.report.drawing import MANY_CLIENTS, Trace, colour, figure, height_of, matrix
from consort.report.html import Columns, Figure, Html, grid, label, plot, table, tag
from consort.report.numbers import count, natural, words

Client: TypeAlias = Mapping[str, Any]
Clients: TypeAlias = Mapping[str, Client]
Labels: TypeAlias = Mapping[str, int]

SPLITS = ("train", "validation", "test")

_BANDS = 25


def size(client: Client) -> int:
    """The number of examples of a client, in all splits."""
    return sum(int(client[split]) for split in SPLITS)


def pictures(clients: Clients, tasks: Mapping[str, Any]) -> Html:
    """Plots of labels and sizes, and of tasks if there are several.

    Args:
        clients: The descriptions of the clients, as in `run.json`.
        tasks: The tasks.
    """
    return grid(
        plot("Labels", label_map(clients), _map_note(clients)) if _classes(clients) else None,
        plot("Examples", sizes(clients)),
        plot("Tasks", task_matrix(clients, tasks)) if _draws_tasks(clients, tasks) else None,
    )


def _draws_tasks(clients: Clients, tasks: Mapping[str, Any]) -> bool:
    return len(tasks) > 1 and len(clients) <= MANY_CLIENTS


def _map_note(clients: Clients) -> str:
    note = "The colour shows the share of a class among the examples of a client."
    if len(clients) <= MANY_CLIENTS:
        return note
    return f"{note} {len(clients):,} clients are grouped into {_BANDS} rows by their largest class."


def label_map(clients: Clients) -> Figure:
    """A heat map of clients and classes; many clients are grouped by their largest class."""
    classes = _classes(clients)
    rows = _rows(clients, classes)
    totals = [sum(labels.values()) or 1 for labels in rows.values()]
    counts = [[labels.get(name, 0) for name in classes] for labels in rows.values()]
    shares = [[n / total for n in row] for row, total in zip(counts, totals, strict=True)]
    trace: Trace = {
        "type": "heatmap",
        "x": [label(name) for name in classes],
        "y": [label(name) for name in rows],
        "z": shares,
        "text": [[f"{n:,}" for n in row] for row in counts],
        "zmin": 0,
        "zmax": max(map(max, shares)),
        "xgap": 1 if len(classes) <= MANY_CLIENTS else 0,
        "ygap": 1,
        "colorbar": {"tickformat": ".0%", "thickness": 10, "outlinewidth": 0},
        "hovertemplate": "%{y}, class %{x}: %{text} examples, %{z:.1%}<extra></extra>",
    }
    return matrix(trace, "class", len(rows))


def _classes(clients: Clients) -> list[str]:
    return sorted({name for client in clients.values() for name in client["labels"]}, key=natural)


def _rows(clients: Clients, classes: Sequence[str]) -> dict[str, Labels]:
    names = sorted(clients, key=natural)
    if len(names) <= MANY_CLIENTS:
        return {name: clients[name]["labels"] for name in names}
    order = {name: place for place, name in enumerate(classes)}
    names.sort(key=lambda name: _main_class(clients[name]["labels"], order))
    edges = [len(names) * band // _BANDS for band in range(_BANDS + 1)]
    return {
        f"{start + 1}–{end}": _together(clients[name]["labels"] for name in names[start:end])  # noqa: RUF001
        for start, end in pairwise(edges)
    }


def _main_class(labels: Labels, order: Mapping[str, int]) -> tuple[int, float]:
    """A sort key: clients with the same largest class together, the largest share first."""
    if not labels:
        return len(order), 0.0
    main = max(labels, key=lambda name: (labels[name], -order[name]))
    return order[main], -labels[main] / sum(labels.values())


def _together(held: Iterable[Labels]) -> Labels:
    total: Counter[str] = Counter()
    for labels in held:
        total.update(labels)
    return total


def sizes(clients: Clients) -> Figure:
    """The number of examples of every client by split; for many clients, a histogram."""
    if len(clients) > MANY_CLIENTS:
        bars = {"type": "histogram", "x": [size(client) for client in clients.values()]}
        look = {"marker": {"color": colour(0)}, "hovertemplate": "%{x} examples: %{y} clients"}
        return figure([bars | look], "examples of a client", "clients", bargap=0.05)
    names = sorted(clients, key=natural)
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "name": split,
            "y": [label(name) for name in names],
            "x": [clients[name][split] for name in names],
            "marker": {"color": colour(place)},
            "hovertemplate": "%{y}: %{x:,}",
        }
        for place, split in enumerate(SPLITS)
    ]
    axis = {"autorange": "reversed", "type": "category"}
    height = height_of(len(names)) + 30
    return figure(traces, "examples", "", height, barmode="stack", yaxis=axis, bargap=0.25)


def task_matrix(clients: Clients, tasks: Mapping[str, Any]) -> Figure:
    """A matrix of the tasks that each client learns."""
    names = sorted(clients, key=natural)
    learns = [[int(task in clients[name]["tasks"]) for task in tasks] for name in names]
    trace: Trace = {
        "type": "heatmap",
        "x": [label(task) for task in tasks],
        "y": [label(name) for name in names],
        "z": learns,
        "text": [["learns" if cell else "does not learn" for cell in row] for row in learns],
        "zmin": 0,
        "zmax": 1,
        "xgap": 3,
        "ygap": 3,
        "showscale": False,
        "hovertemplate": "%{y} %{text} %{x}<extra></extra>",
    }
    return matrix(trace, "task", len(names))


def tables(clients: Clients, tasks: Mapping[str, Mapping[str, Any]]) -> Html:
    """Tables of tasks, models and groups, with the numbers of their clients and examples.

    Args:
        clients: The descriptions of the clients, as in `run.json`.
        tasks: The tasks.
    """
    held = {name: [c for c in clients.values() if name in c["tasks"]] for name in tasks}
    return tag(
        "div",
        _table({"Task": str, "Metric": lambda name: words(tasks[name]["metric"])}, held),
        _table(
            {"Model": lambda kind: str(kind[0]), "Parameters": lambda kind: count(kind[1])},
            _by(clients, "model", "parameters"),
        ),
        _table({"Group": lambda kind: str(kind[0])}, _by(clients, "group")),
        class_="side",
    )


def _table(columns: Columns[Any], held: Mapping[Any, Sequence[Client]]) -> Html:
    sums: Columns[Any] = {
        "Clients": lambda kind: count(len(held[kind])),
        "Examples": lambda kind: count(sum(map(size, held[kind]))),
    }
    return table(held, {**columns, **sums})


def _by(clients: Clients, *keys: str) -> dict[tuple[Any, ...], list[Client]]:
    kinds: dict[tuple[Any, ...], list[Client]] = defaultdict(list)
    for client in clients.values():
        kinds[tuple(client[key] for key in keys)].append(client)
    return kinds
