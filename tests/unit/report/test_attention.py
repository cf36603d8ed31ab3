"""Attention matrix, and what is taken from others."""

from __future__ import annotations

import pytest
from tests.unit.report.sample import load_run
from tests.unit.report.test_algorithm_notes import figures, folds, titles

from consort.core.row import Row
from consort.report.algorithm_notes import attention_between_clients as section
from consort.report.algorithm_notes import other_notes
from consort.report.attention import attention_map, attention_to_others, names_in
from consort.report.run_set import RunSet

SHARES = {1: {"a": (0.5, 0.5), "b": (0.5, 0.5)}, 2: {"a": (0.7, 0.3), "b": (0.4, 0.6)}}
"""By round: how much a and b attend to a and to b."""


def notes(rounds=(1, 2)):
    for round_ in rounds:
        for one, row in SHARES[round_].items():
            for other, share in zip("ab", row, strict=True):
                yield Row(round_, "attention", share, part=f"{one}/seg → {other}/seg")
        for client, weight in (("a", 0.1 * round_), ("b", 0.2 * round_)):
            yield Row(round_, "weight_of_others", weight, client, part="encoder")
            yield Row(round_, "weight_of_others", weight, client, part="decoders.seg.first")
            yield Row(round_, "weight_of_others", 3 * weight, client, part="decoders.seg.last")


def run_set(folder, **how):
    return RunSet.of([load_run(folder, algorithm="fedhca2", clients=2, notes=notes(**how))])


def test_the_map_is_of_the_last_round_and_the_slider_of_all(tmp_path):
    shares = run_set(tmp_path).first.notes("attention")
    names = names_in(shares)
    assert names == ["a/seg", "b/seg"]
    drawn = attention_map(shares, names, [1, 2])
    (trace,), layout = drawn["data"], drawn["layout"]
    assert trace["y"] == names
    assert trace["z"] == [[0.7, 0.3], [0.4, 0.6]]
    assert (trace["zmin"], trace["zmax"]) == pytest.approx((0.3, 0.7))  # around an even share
    (slider,) = layout["sliders"]
    assert [step["label"] for step in slider["steps"]] == ["1", "2"]
    assert slider["steps"][0]["args"] == [{"z": [[[0.5, 0.5], [0.5, 0.5]]]}]
    assert slider["active"] == 1


def test_even_shares_stay_pale(tmp_path):
    shares = run_set(tmp_path, rounds=[1]).first.notes("attention")
    drawn = attention_map(shares, names_in(shares), [1])
    trace = drawn["data"][0]
    assert (trace["zmin"], trace["zmax"]) == pytest.approx((0.45, 0.55))
    assert "sliders" not in drawn["layout"]


def test_what_goes_to_anybody_else(tmp_path):
    shares = run_set(tmp_path).first.notes("attention")
    found = attention_to_others(shares, names_in(shares))
    assert found[1] == {"a/seg": 0.5, "b/seg": 0.5}
    assert found[2] == pytest.approx({"a/seg": 0.3, "b/seg": 0.4})


def test_who_was_absent_has_no_cell(tmp_path):
    rows = [Row(1, "attention", 1.0, part="a → a"), Row(2, "attention", 1.0, part="b → b")]
    run = load_run(tmp_path, notes=rows)
    assert attention_to_others(run.notes("attention"), ["a", "b"]) == {1: {"a": 0}, 2: {"b": 0}}
    (_, _, html) = section(RunSet.of([run])).partition("Attention matrix")
    assert figures(html)[0]["data"][0]["z"] == [[None, None], [None, 1]]


def test_the_section_has_weights_over_time_too(tmp_path):
    of_run = run_set(tmp_path)
    html = section(of_run)
    assert folds(html) == [("fedhca2, seed 0: attention and learnt weights", True)]
    assert titles(html) == [
        "Attention matrix",
        "Attention to others",
        "Weight of others, encoder",
        "Weight of others, decoders (mean over layers)",
        "Weight of others in round 2",
    ]
    *_, encoder, decoders, layers = (figure["data"][0] for figure in figures(html))
    assert encoder["x"] == [1, 2]
    assert encoder["y"] == ["a", "b"]
    assert encoder["z"] == [[0.1, 0.2], [0.2, 0.4]]
    assert decoders["z"] == [[0.2, 0.4], [0.4, 0.8]]
    assert layers["x"] == ["encoder", "seg.first", "seg.last"]
    assert other_notes(of_run) == ""


def test_the_figures_are_such_as_plotly_accepts(tmp_path):
    from plotly.graph_objects import Figure

    for figure in figures(section(run_set(tmp_path))):
        Figure(figure)


def test_nothing_where_nothing_was_noted(tmp_path):
    assert section(RunSet.of([load_run(tmp_path)])) == ""
