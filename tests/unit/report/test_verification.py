"""The section about verified signatures: exact numbers in a table and in curves."""

from __future__ import annotations

from statistics import NormalDist

import pytest
from tests.unit.report.sample import TASKS, load_run
from tests.unit.report.test_algorithm_notes import figures, titles
from tests.unit.report.test_tables import heads, rows

from consort.core.row import Row
from consort.domains.signatures import verification as measured
from consort.report.run_set import RunSet
from consort.report.tables import client_table
from consort.report.verification import CURVE, TASK, det_curves, verification

VERIFY = {"verify": {"metric": "wd_eer", "higher_is_better": False}}


def verified(split, client, eer, curve, round_=10):
    place = (client, TASK, split, "global")
    points = [Row(round_, CURVE, value, *place, part) for part, value in curve.items()]
    return [
        Row(round_, "wd_eer", eer, *place, n=9),
        Row(round_, "wd_auc", 1 - eer, *place),
        *points,
    ]


def study_of(folder, **rates):
    """Two clients; an algorithm's equal error rates are around its own."""
    runs = []
    for name, rate in rates.items():
        notes = [
            row
            for client, more in (("client-0", 0.0), ("client-1", 0.1))
            for split in ("test", "unseen_bengali")
            for row in verified(split, client, rate + more, {"0.01": rate + more, "0.1": 0.0})
        ]
        about = {"tasks": TASKS | VERIFY}
        runs.append(load_run(folder / name, algorithm=name, about=about, clients=2, notes=notes))
    return RunSet.of(runs)


def test_the_names_are_those_that_are_measured():
    assert (TASK, "wd_eer") == (measured.TASK, measured.METRIC)


def test_nothing_is_shown_where_nothing_was_verified(tmp_path):
    assert verification(RunSet.of([load_run(tmp_path)])) == ""


def test_the_table_has_own_and_unseen_users(tmp_path):
    html = verification(study_of(tmp_path, fedmh=0.2, local=0.3))
    columns = heads(html)
    assert columns[:2] == ["Algorithm", "EER"]
    assert {"FAR", "FRR", "AUC", "EER one threshold", "unseen bengali EER"} <= set(columns)
    first = dict(zip(columns, rows(html)[0], strict=True))
    assert (first["Algorithm"], first["unseen bengali EER"]) == ("fedmh", "0.250")
    assert first["unseen bengali AUC"] == "0.750"


def test_clients_have_a_line_for_what_nobody_learns(tmp_path):
    lines = rows(client_table(study_of(tmp_path, fedmh=0.2)))
    verified = {line[0]: line[-2] for line in lines if line[3] == "verify"}
    assert verified == {"client-0": "0.200", "client-1": "0.300"}


def test_there_is_a_curve_for_every_split(tmp_path):
    html = verification(study_of(tmp_path, fedmh=0.2))
    assert titles(html) == [
        "DET curves: the clients&#x27; own users",
        "DET curves: unseen users (bengali)",
    ]
    assert all(figure["data"] for figure in figures(html))


def test_curves_are_means_over_clients_on_normal_axes(tmp_path):
    figure = det_curves(study_of(tmp_path, fedmh=0.2, local=0.3), "test")
    diagonal, fedmh, local = figure["data"]
    assert (fedmh["name"], local["name"]) == ("fedmh", "local")
    deviate = NormalDist().inv_cdf
    assert fedmh["x"] == pytest.approx([deviate(0.01), deviate(0.1)])
    assert fedmh["y"][0] == pytest.approx(deviate(0.25))
    assert local["y"][0] == pytest.approx(deviate(0.35))
    assert diagonal["x"] == diagonal["y"]
    assert fedmh["text"] == ["1 % and 25.0 %", "10 % and 0.0 %"]


def test_a_rate_of_nothing_has_a_place_on_the_axis(tmp_path):
    figure = det_curves(study_of(tmp_path, fedmh=0.2), "test")
    low, _ = figure["layout"]["yaxis"]["range"]
    assert figure["data"][1]["y"][1] == pytest.approx(low)
