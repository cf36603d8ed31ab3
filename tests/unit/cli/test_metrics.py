"""Score files from `compare --scores` to `metrics`."""

from __future__ import annotations

import json

from tests.unit.cli.command import consort
from tests.unit.use.signed import signed_recipe

from consort.results.score_files import ScoreTable


def test_scores_of_a_comparison_are_measured(tmp_path):
    signed_recipe(tmp_path)
    found = consort("compare", tmp_path / "signed.toml", "--out", tmp_path / "out", "--scores")
    assert found.code == 0, found.err
    files = sorted((tmp_path / "out").rglob("scores-*.csv"))
    assert len(files) == 4
    found = consort("metrics", *files[:2])
    assert found.code == 0, found.err
    for words in ("skilled impostors", "EER", "FMR100", "FMR1000", "ZeroFMR", "FNMR"):
        assert words in found.out
    assert f"thresholds from development data ({files[0]})" in found.out
    data = json.loads(consort("metrics", *files[:2], "--json").out)
    assert {row["rule"] for row in data["thresholds"]} == {"EER", "FMR100", "FMR1000"}
    assert consort("metrics", *files[:2], "--quiet").out == ""
    table = ScoreTable.load(files[1:2])
    assert data["thresholds"][0]["fnmr"]["total"] == table.scores().size


def test_thresholds_from_the_tested_data_say_so(tmp_path):
    text = "bio_ref_subject_id,probe_subject_id,probe_key,score\na,a,x,1\na,b,y,0\n"
    (tmp_path / "one.csv").write_text(text)
    found = consort("metrics", tmp_path / "one.csv")
    assert "thresholds from the tested data themselves, too good" in found.out
    assert consort("metrics", tmp_path / "two.csv").code == 2
    assert "there is no file" in consort("metrics", tmp_path / "two.csv").error
