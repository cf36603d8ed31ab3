"""Runs of unlike settings side by side are told."""

from __future__ import annotations

import pytest
from tests.unit.cli.command import consort
from tests.unit.report.sample import load_run, write_run

from consort.report.page import write_report
from consort.results.mixing import unlike_settings

RECIPE = {"run": {"rounds": 10}, "title": "x", "seeds": [0], "algorithms": {"fedavg": {"mu": 1}}}


def made(folder, algorithm="fedavg", seed=0, recipe=RECIPE, **about):
    told = {"recipe": recipe, "partition": "p", **about}
    return load_run(folder, algorithm=algorithm, seed=seed, rounds=2, about=told)


def test_runs_of_one_experiment_belong_together(tmp_path):
    other = RECIPE | {"title": "y", "seeds": [0, 1], "claims": [], "algorithms": {"ditto": {}}}
    runs = [made(tmp_path / "a"), made(tmp_path / "b", "ditto", recipe=other),
            made(tmp_path / "c", seed=1, partition="q")]  # fmt: skip
    assert unlike_settings(runs) == []
    assert unlike_settings(runs[:1]) == []


@pytest.mark.parametrize(("recipe", "words"), [
    ({"run": {"rounds": 20}}, "different settings: run.rounds is 10 and 20"),
    ({"local": {"lr": 0.5}}, "different settings: local is None and {'lr': 0.5}"),
    ({"algorithms": {"fedavg": {"mu": 2}}}, "fedavg with different options: mu is 1 and 2"),
])  # fmt: skip
def test_other_settings_are_named(tmp_path, recipe, words):
    runs = [made(tmp_path / "a"), made(tmp_path / "b", seed=1, recipe=RECIPE | recipe)]
    assert unlike_settings(runs) == [f"{words} ({tmp_path / 'b'})"]


def test_the_same_seed_with_other_data(tmp_path):
    runs = [made(tmp_path / "a"), made(tmp_path / "b", "ditto", partition="q")]
    assert unlike_settings(runs) == [f"different data or partitions with seed 0 ({tmp_path / 'b'})"]


def test_the_report_and_the_commands_say_so(tmp_path):
    runs = [made(tmp_path / "a"), made(tmp_path / "b", seed=1, recipe=RECIPE | {"clients": 9})]
    page = write_report(runs, tmp_path / "page.html").read_text("utf-8")
    assert "These runs do not belong together: different settings: clients is None and 9" in page
    for command in ("report", "table"):
        shown = consort(command, tmp_path / "a", tmp_path / "b")
        assert shown.code == 0
        assert "warning: these runs do not belong together: different settings" in shown.err


def test_plain_runs_are_not_warned_about(tmp_path):
    write_run(tmp_path / "a", rounds=2)
    assert consort("report", tmp_path / "a").err == ""
