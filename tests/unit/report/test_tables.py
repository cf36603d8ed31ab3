"""Tables of a report, and its headline."""

from __future__ import annotations

import re
from statistics import fmean

import pytest
from tests.unit.report.sample import TASKS, load_run

from consort.report.headline import headline, headline_tiles
from consort.report.numbers import UNKNOWN
from consort.report.run_set import RunSet
from consort.report.tables import client_table, run_table, task_table, time_table, traffic_table
from consort.results.table import Published, compare_table

SHAPE = {"shape": TASKS["shape"]}


def heads(page):
    return re.findall(r"<th [^>]*><button[^>]*>(.*?)</button>", page)


def rows(page):
    body = re.search(r"<tbody>(.*?)</tbody>", page).group(1)
    return [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", body)]


@pytest.fixture
def runs(tmp_path):
    kinds = [("fedavg", ("global",), 0.7), ("ditto", ("personal", "global"), 0.9)]
    return [
        load_run(tmp_path / f"{name}-{seed}", algorithm=name, seed=seed, models=models, skill=skill)
        for name, models, skill in kinds
        for seed in (0, 1)
    ]


def test_the_headline_stands_metric_by_metric(runs):
    page = headline(compare_table(runs, [Published("paper", "accuracy", {"ditto": 81.0})]))
    assert [row[:2] for row in rows(page)] == [
        ["fedavg", "accuracy"],
        ["ditto", "accuracy"],
        ["fedavg", "rmse"],
        ["ditto", "rmse"],
    ]
    published = heads(page).index("Published")
    assert [row[published] for row in rows(page)] == [UNKNOWN, "0.810", UNKNOWN, UNKNOWN]
    assert "over 2 seeds" in page


def test_the_best_is_bold_whichever_way_is_better(runs):
    page = headline(compare_table(runs))
    best = re.findall(r"<tr><td>(\w+)</td><td>(\w+)</td><td class=\"(number(?: best)?)\"", page)
    assert best == [
        ("fedavg", "accuracy", "number"),
        ("ditto", "accuracy", "number best"),
        ("fedavg", "rmse", "number"),
        ("ditto", "rmse", "number best"),
    ]


def test_columns_without_content_are_left_out(tmp_path):
    runs = [load_run(tmp_path / name, algorithm=name, tasks=SHAPE) for name in ("a", "b")]
    assert not {"Metric", "Published"} & set(heads(headline(compare_table(runs))))


def test_tiles_of_one_run(tmp_path):
    run = load_run(tmp_path / "run", tasks=SHAPE)
    page = headline_tiles(compare_table([run], [Published("paper", "accuracy", {"fedavg": 61.2})]))
    for name in ("accuracy", "best_accuracy", "worst_accuracy"):
        assert f"<dd>{run.value(name):.3f}</dd>" in page
    assert "<dd>0.612</dd>" in page


def test_every_task_with_every_model(runs):
    page = task_table(RunSet.of(runs))
    assert [row[0] + " " + row[2] + " " + row[3] for row in rows(page)] == [
        "shape fedavg global ●",
        "shape ditto global",
        "shape ditto personal ●",
        "depth fedavg global ●",
        "depth ditto global",
        "depth ditto personal ●",
    ]
    tests = [run.spread(run.last_round, "shape", model="global").mean for run in runs[2:]]
    assert rows(page)[1][4].startswith(f"{fmean(tests):.3f} ±")


def test_every_client_with_every_task(runs):
    page = client_table(RunSet.of(runs))
    known = runs[0].clients
    assert len(rows(page)) == sum(len(client["tasks"]) for client in known.values())
    assert heads(page)[-4:] == ["fedavg", "fedavg, best", "ditto", "ditto, best"]
    line = rows(page)[1]
    values = [run.clients_at(run.last_round, "shape")["client-1"] for run in runs[:2]]
    assert line[:4] == ["client-1", "left", "cnn4(scale=1.0)", "shape"]
    assert line[4:7] == [
        str(known["client-1"]["train"]),
        str(known["client-1"]["test"]),
        f"{fmean(values):.3f}",
    ]


def test_a_client_that_was_not_evaluated_has_no_value(tmp_path):
    run = load_run(tmp_path / "run", tasks=SHAPE)
    run.clients["stranger"] = run.clients["client-0"]
    assert rows(client_table(RunSet.of([run])))[-1][-2:] == [UNKNOWN, UNKNOWN]


def test_very_many_clients_are_cut_and_said_so(tmp_path):
    run = load_run(tmp_path / "run", tasks=SHAPE, clients=1001, rounds=1)
    page = client_table(RunSet.of([run]))
    assert len(rows(page)) == 1000
    assert "The first 1,000 of 1,001 rows" in page


def test_traffic_time_and_runs(runs):
    run_set = RunSet.of(runs)
    assert [row[:2] for row in rows(traffic_table(run_set))][:3] == [
        ["fedavg", "encoder"],
        ["fedavg", "heads"],
        ["fedavg", "buffers"],
    ]
    assert rows(time_table(run_set))[0][-1] == "410"
    assert rows(run_table(run_set))[1][:3] == ["fedavg", "1", "10 of 10"]
