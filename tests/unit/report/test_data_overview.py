"""Plots and tables of the clients' data."""

from __future__ import annotations

import pytest
from tests.unit.report.sample import TASKS, description

from consort.report.data_overview import label_map, pictures, size, sizes, tables, task_matrix

SHAPE = {"shape": TASKS["shape"]}


def test_the_label_map_shows_shares_of_a_clients_examples():
    clients = {
        "client-10": {"labels": {"10": 1, "2": 3}},
        "client-2": {"labels": {"2": 5}},
        "empty": {"labels": {}},
    }
    (trace,) = label_map(clients)["data"]
    assert trace["x"] == ["2", "10"]
    assert trace["y"] == ["client-2", "client-10", "empty"]
    assert trace["z"] == [[1, 0], [0.75, 0.25], [0, 0]]
    assert trace["text"][1] == ["3", "1"]
    assert (trace["zmin"], trace["zmax"]) == (0, 1)


def test_many_clients_share_the_rows_of_the_label_map():
    clients = description(500)["clients"]
    (trace,) = label_map(clients)["data"]
    assert len(trace["z"]) == 25
    assert [sum(row) for row in trace["z"]] == [pytest.approx(1)] * 25
    shown = sum(int(text.replace(",", "")) for row in trace["text"] for text in row)
    assert shown == sum(map(size, clients.values()))
    largest = [row.index(max(row)) for row in trace["z"]]
    assert largest == sorted(largest)


def test_sizes_by_split():
    clients = description(12)["clients"]
    train, validation, _ = sizes(clients)["data"]
    assert train["y"][-1] == "client-11"
    assert train["x"][-1] == clients["client-11"]["train"]
    assert validation["name"] == "validation"


def test_sizes_of_many_clients_are_a_histogram():
    clients = description(61)["clients"]
    (trace,) = sizes(clients)["data"]
    assert trace["type"] == "histogram"
    assert sorted(trace["x"]) == sorted(map(size, clients.values()))


def test_who_learns_what():
    told = description(3)
    (trace,) = task_matrix(told["clients"], told["tasks"])["data"]
    assert trace["x"] == ["shape", "depth"]
    assert trace["z"] == [[1, 0], [1, 1], [1, 0]]


@pytest.mark.parametrize(("clients", "tasks", "titles"), [
    (6, TASKS, ["Labels", "Examples", "Tasks"]),
    (6, SHAPE, ["Labels", "Examples"]),
    (61, TASKS, ["Labels", "Examples"]),
])  # fmt: skip
def test_only_pictures_that_say_something(clients, tasks, titles):
    told = description(clients, tasks)
    page = pictures(told["clients"], told["tasks"])
    assert [
        title for title in ("Labels", "Examples", "Tasks") if f"<h3>{title}</h3>" in page
    ] == titles


def test_no_label_map_without_labels():
    told = description(3)
    clients = {name: client | {"labels": {}} for name, client in told["clients"].items()}
    assert "<h3>Labels</h3>" not in pictures(clients, told["tasks"])


def test_tables_count_clients_and_examples():
    told = description(6)
    page = tables(told["clients"], told["tasks"])
    total = sum(map(size, told["clients"].values()))
    assert f">{total:,}</td>" in page  # every client learns the shape
    assert '<td>resnet(depth=10)</td><td class="number" data-value="300000">300,000</td>' in page
    assert "<td>left</td>" in page
