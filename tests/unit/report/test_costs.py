"""Plots of bytes and seconds."""

from __future__ import annotations

import pytest
from tests.unit.report.sample import TASKS, load_run

from consort.core.row import Row
from consort.report.costs import (
    operations_per_round,
    roles,
    seconds_per_client,
    seconds_per_round,
    traffic_by_role,
    traffic_compared,
    traffic_per_round,
)
from consort.report.run_set import RunSet
from consort.results.table import MIB


@pytest.fixture
def run_set(tmp_path):
    settings = [("fedavg", {"zeta": 5, "heads": 2 * MIB, "encoder": 3 * MIB}), ("local", {})]
    return RunSet.of(
        [
            load_run(tmp_path / f"{name}-{seed}", algorithm=name, seed=seed, roles=sent, rounds=4)
            for name, sent in settings
            for seed in (0, 1)
        ]
    )


def test_roles_have_a_fixed_order(run_set):
    assert roles(run_set.runs) == ["encoder", "heads", "zeta"]


def test_totals_by_role_and_direction(run_set):
    figure = traffic_by_role(run_set)
    encoder = figure["data"][0]
    assert encoder["y"] == ["fedavg, up", "fedavg, down", "local, up", "local, down"]
    assert encoder["x"] == [72, 72, 0, 0]  # 3 MiB, 6 clients, 4 rounds
    assert figure["layout"]["barmode"] == "stack"
    total = sum(x for trace in figure["data"] for x in trace["x"])
    assert total == pytest.approx(run_set.first.value("bytes") / MIB)


def test_one_run_by_round(run_set):
    traces = {trace["name"]: trace for trace in traffic_per_round(run_set.first, "down")["data"]}
    assert traces["heads"]["x"] == [1, 2, 3, 4]
    assert traces["heads"]["y"] == [12] * 4


def test_algorithms_by_round(run_set):
    fedavg, local = traffic_compared(run_set)["data"]
    assert fedavg["y"] == [pytest.approx(2 * 6 * (5 * MIB + 5) / MIB)] * 4
    assert local["y"] == [0] * 4


def test_seconds_per_round_are_means_over_seeds(run_set):
    fedavg = seconds_per_round(run_set)["data"][0]
    one, two = (run.per_round("seconds") for run in run_set.groups["fedavg"])
    assert fedavg["y"] == [pytest.approx((one[r] + two[r]) / 2) for r in (1, 2, 3, 4)]


def test_seconds_per_client(run_set):
    fedavg = seconds_per_client(run_set)["data"][0]
    one, two = (run.client_seconds() for run in run_set.groups["fedavg"])
    assert fedavg["x"] == [f"client-{n}" for n in range(6)]
    assert fedavg["y"][3] == pytest.approx((one["client-3"] + two["client-3"]) / 2)


def test_seconds_of_many_clients_are_a_box(tmp_path):
    run = load_run(tmp_path / "run", clients=61, rounds=1, tasks={"shape": TASKS["shape"]})
    (box,) = seconds_per_client(RunSet.of([run]))["data"]
    assert box["type"] == "box"
    assert sorted(box["x"]) == sorted(run.client_seconds().values())


def test_operations_of_algorithms_that_counted_them(tmp_path, run_set):
    def counted(seed):
        work = [Row(r, "flops", (1 + seed) * 6e9, "client-0", part="train") for r in (1, 2)]
        return load_run(tmp_path / f"c-{seed}", algorithm="c", seed=seed, rounds=2, notes=work)

    both = RunSet.of([*run_set.runs, counted(0), counted(1)])
    (bars,) = operations_per_round(both)["data"]
    assert (bars["y"], bars["x"]) == (["c"], [9.0])
    assert operations_per_round(run_set)["data"][0]["x"] == []
