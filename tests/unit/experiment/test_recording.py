"""`consort compare --record`: a row for each run, bound to the settings that decided it."""

from __future__ import annotations

from tests.unit.cli.command import consort, write_recipe

from consort.experiment.loading import load_recipe
from consort.experiment.recording import record_file, settings_of
from consort.experiment.shipped import find_recipe
from consort.results.records import read_records
from consort.results.result import Result
from consort.run.folder import runs_below


def test_a_comparison_is_recorded_and_found_again(tmp_path):
    recipe = write_recipe(tmp_path)
    arguments = ("compare", recipe, "--out", tmp_path / "out", "--record", tmp_path / "results")
    assert consort(*arguments, "--seeds", 2).code == 0
    file = tmp_path / "results" / recipe.stem / "default.csv"
    loaded, records = load_recipe(recipe), read_records(file)
    assert [(r.origin.algorithm, r.origin.seed) for r in records] == [
        (name, seed) for name in sorted(loaded.algorithms) for seed in (0, 1)
    ]
    runs = {(r.algorithm, r.seed): r for r in map(Result.load, runs_below(tmp_path / "out"))}
    for found in records:
        run = runs[found.origin.algorithm, found.origin.seed]
        assert found.origin.settings == settings_of(loaded, run.algorithm)
        assert f"{found.values['accuracy']:.5g}" == f"{run.value('accuracy'):.5g}"
        assert found.values["bytes"] == run.value("bytes")
        assert found.origin.cpu == run.about["environment"]["cpu"]
    before = file.read_bytes()
    assert consort(*arguments, "--seeds", 2).code == 0
    assert file.read_bytes() == before


def test_what_decides_nothing_does_not_change_the_digest(tmp_path):
    recipe = write_recipe(tmp_path)
    plain = settings_of(load_recipe(recipe), "fedavg")
    for change in ("seeds=[5]", 'title="another"', "claims=[]"):
        assert settings_of(load_recipe(recipe, changes=[change]), "fedavg") == plain
    for change in ("run.rounds=9", "average_rounds=2", "local.lr=0.2", "data.classes=3"):
        assert settings_of(load_recipe(recipe, changes=[change]), "fedavg") != plain


def test_a_changed_recipe_is_not_recorded(tmp_path):
    recipe = write_recipe(tmp_path)
    told = consort("compare", recipe, "--set", "local.lr=1", "--record", tmp_path / "results")
    assert told.code == 2
    assert "change the recipe, not --set" in told.error
    assert not (tmp_path / "results").exists()


def test_recipes_that_come_with_consort_keep_their_names(tmp_path):
    path = find_recipe("fedfew/table1")
    assert record_file(tmp_path, path, "desk") == tmp_path / "fedfew" / "table1" / "desk.csv"
