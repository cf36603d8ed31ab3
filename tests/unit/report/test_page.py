"""Whole pages: complete, self-contained, safe, the same every time."""

from __future__ import annotations

import json
import re
from functools import cache

import pytest
from tests.unit.report.sample import TASKS, description, load_run, model_notes

from consort.core.row import Row
from consort.errors import Failure, UsageError
from consort.report.inspect import write_inspection
from consort.report.page import write_report
from consort.results.claims import Verdict

SHAPE = {"shape": TASKS["shape"]}
HOSTILE = "<img src=x onerror=alert(1)>"


@cache
def plotly_script():
    from plotly.offline import get_plotlyjs

    return get_plotlyjs()


def own_part(path):
    """The page without Plotly."""
    page = path.read_text(encoding="utf-8")
    assert page.count(plotly_script()) == 1
    return page.replace(plotly_script(), "")


def figures(page):
    found = re.findall(r'<script type="application/json">(.*?)</script>', page, re.DOTALL)
    return list(map(json.loads, found))


def menu(page):
    return re.findall(r'<a href="#[^"]+">(.*?)</a>', page)


@pytest.fixture
def single(tmp_path):
    return load_run(tmp_path / "run", algorithm="ditto", models=("personal", "global"))


@pytest.fixture
def several(tmp_path):
    return [
        load_run(tmp_path / f"{name}-{seed}", algorithm=name, seed=seed, roles=roles)
        for name, roles in (("local", {}), ("fedavg", {"encoder": 10**6}))
        for seed in (0, 1)
    ]


def test_a_page_about_one_run(single, tmp_path):
    page = own_part(write_report([single], tmp_path / "new" / "report.html"))
    assert menu(page) == [
        "Summary",
        "Tasks",
        "Learning curves",
        "Clients",
        "Communication",
        "Time",
        "Federation",
        "Settings",
    ]
    assert "Unlike clients: ditto" in page
    assert "seed 0 · 6 clients · 2 tasks · 10 rounds" in page
    assert single.about["partition"] in page
    assert "dirichlet" in page
    assert "What ditto does, in one line." in page


def test_what_was_noted_has_sections_of_its_own(tmp_path):
    run = load_run(tmp_path / "run", algorithm="fedfew", notes=model_notes())
    page = own_part(write_report([run], tmp_path / "report.html"))
    before, *noted, after = menu(page)[3:7]
    assert (before, after) == ("Clients", "Communication")
    assert noted == ["Model assignment", "Algorithm diagnostics"]
    assert 'id="model-assignment"' in page


def test_algorithms_are_compared_client_by_client(single, several, tmp_path):
    def strips(runs):
        page = own_part(write_report(runs, tmp_path / "report.html"))
        return re.findall("<h3>([^<]*: single clients)</h3>", page)

    assert strips(several) == ["shape: single clients", "depth: single clients"]
    assert strips([single]) == []


def test_a_page_about_several_runs(several, tmp_path):
    page = own_part(write_report(several, tmp_path / "report.html"))
    assert "2 algorithms · 2 seeds · 6 clients · 2 tasks · 10 rounds" in page
    assert "other runs partition the data differently" in page


def test_every_figure_is_one_that_plotly_accepts(single, several, tmp_path):
    from plotly.graph_objects import Figure

    pages = [
        write_report([single], tmp_path / "single.html"),
        write_report(several, tmp_path / "several.html"),
        *(
            write_report(
                [
                    load_run(
                        tmp_path / f"noted-{name}-{clients}",
                        algorithm=name,
                        clients=clients,
                        rounds=3,
                        tasks=SHAPE,
                        notes=model_notes(clients, 3),
                    )
                    for name in ("fedfew", "ifca")
                ],
                tmp_path / f"noted-{clients}.html",
            )
            for clients in (6, 201)
        ),
        write_inspection(description(6), tmp_path / "few.html"),
        write_inspection(description(61), tmp_path / "many.html"),
    ]
    drawn = [figure for page in pages for figure in figures(own_part(page))]
    assert len(drawn) > 50
    for figure in drawn:
        Figure(figure)
        assert figure["layout"]["height"] >= 100


def test_nothing_is_fetched_from_elsewhere(single, tmp_path):
    page = own_part(write_report([single], tmp_path / "report.html"))
    assert not re.search(r"https?:|//\w|@import|url\(|<link|<img|<iframe| src=", page)


def test_the_same_runs_give_the_same_bytes(several, tmp_path):
    one, two = (write_report(several, tmp_path / name) for name in ("one.html", "two.html"))
    assert one.read_bytes() == two.read_bytes()


def test_claims_are_told_in_words(single, tmp_path):
    outcomes = ("holds", "fails", "undecided")
    verdicts = [Verdict(f"a(x) < {n}", outcome, "why & how") for n, outcome in enumerate(outcomes)]
    page = own_part(write_report([single], tmp_path / "report.html", verdicts))
    assert re.findall(r'class="verdict (\w+)">(\w+)<', page) == [(o, o) for o in outcomes]
    assert "a(x) &lt; 2" in page
    assert "why &amp; how" in page


def test_hostile_names_are_only_text(tmp_path):
    tasks = {HOSTILE: TASKS["shape"]}
    told = description(3, tasks)
    clients = {f"{HOSTILE} {name}": about for name, about in told["clients"].items()}
    about = told | {"title": HOSTILE, "description": HOSTILE, "recipe": {HOSTILE: HOSTILE}}
    settings = about | {"clients": clients, "environment": {HOSTILE: HOSTILE}}
    notes = [
        Row(1, name, 0, client, part=part)
        for name in ("chosen_model", "model_weight", HOSTILE)
        for client in ("", *clients)
        for part in ("", HOSTILE)
    ]
    run = load_run(
        tmp_path / "run", algorithm=HOSTILE, tasks=tasks, models=(HOSTILE,), about=settings,
        notes=notes,
    )  # fmt: skip
    pages = [
        write_report([run], tmp_path / "report.html", [Verdict(HOSTILE, "holds", HOSTILE)]),
        write_inspection(about | {"clients": clients}, tmp_path / "inspect.html"),
    ]
    for page in map(own_part, pages):
        assert "&lt;img src=x" in page
        assert "<img" not in page
        assert "<img" not in json.dumps(figures(page))


def test_a_run_that_is_still_going(tmp_path):
    run = load_run(tmp_path / "run", rounds=4, about={"rounds": 10})
    assert "4 of 10 rounds" in own_part(write_report([run], tmp_path / "report.html"))


def test_a_run_that_sends_nothing(tmp_path):
    run = load_run(tmp_path / "run", roles={})
    assert "No tensors were sent." in own_part(write_report([run], tmp_path / "report.html"))


def test_a_thousand_clients_make_a_small_page(tmp_path):
    notes = model_notes(1000, 3)
    run = load_run(tmp_path / "run", clients=1000, rounds=3, tasks=SHAPE, notes=notes)
    page = own_part(write_report([run], tmp_path / "report.html"))
    assert len(page) < 500_000
    assert max(len(trace.get("z", [])) for f in figures(page) for trace in f["data"]) == 25


def test_a_report_needs_a_run(tmp_path):
    with pytest.raises(UsageError, match="at least one run"):
        write_report([], tmp_path / "report.html")


def test_a_page_that_cannot_be_written(single, tmp_path):
    (tmp_path / "report.html").mkdir()
    with pytest.raises(Failure, match=r"report\.html: the page cannot be written: Is a directory"):
        write_report([single], tmp_path / "report.html")


def test_the_federation_before_training(tmp_path):
    told = description(6)
    page = own_part(write_inspection(told, tmp_path / "inspect.html"))
    assert menu(page) == ["Overview", "Data of the clients", "Tasks, models and groups", "Settings"]
    assert told["partition"] in page
    assert "<dt>Clients</dt><dd>6</dd>" in page
    assert "<dt>Size skew</dt>" in page
    assert "<dt>Label skew</dt>" in page
    assert [f["layout"]["xaxis"]["title"]["text"] for f in figures(page)] == [
        "class",
        "examples",
        "task",
    ]


def test_a_federation_without_labels(tmp_path):
    told = description(3)
    clients = {name: client | {"labels": {}} for name, client in told["clients"].items()}
    page = own_part(write_inspection(told | {"clients": clients, "title": ""}, tmp_path / "x.html"))
    assert "<h1>A federation</h1>" in page
    assert "Label skew" not in page
