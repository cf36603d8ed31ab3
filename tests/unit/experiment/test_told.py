"""What users get wrong with recipe files and changes, and what they are told."""

from __future__ import annotations

import errno
import sys

import pytest
from tests.unit.cli.command import RECIPE, consort

from consort.errors import UsageError
from consort.experiment.loading import load_recipe
from consort.experiment.shipped import find_recipe
from consort.experiment.tables import dropped, merged

SCALED = (
    RECIPE
    + """
[scales.small]
data = { name = "synthetic_shapes", size = 8, examples = 60 }
"""
)


def test_a_file_with_a_similar_name_is_suggested(tmp_path, monkeypatch):
    (tmp_path / "writers.toml").write_text(RECIPE)
    wrong = tmp_path / "wirters.toml"
    with pytest.raises(UsageError) as error:
        find_recipe(str(wrong))
    assert f"there is no recipe '{wrong}': did you mean '{tmp_path / 'writers.toml'}'?" in str(
        error.value
    )
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"'writer\.toml': did you mean 'writers\.toml'\?"):
        find_recipe("writer.toml")
    with pytest.raises(UsageError, match="'dmeo': did you mean 'demo'"):
        find_recipe("dmeo")


def test_options_that_a_change_leaves_out_are_told(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(SCALED)
    told: list[str] = []
    load_recipe(path, "small", ["data.name=synthetic_scenes"], told.append)
    assert told == [
        "scale small leaves out data.classes = 4, data.features = 6: give them again with --set "
        "if they are to stay",
        "--set data.name=synthetic_scenes leaves out data.examples = 60, data.size = 8: give them "
        "again with --set if they are to stay",
    ]


def test_nothing_is_told_where_nothing_is_left_out(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(SCALED)
    told: list[str] = []
    load_recipe(path, None, ["data.name=synthetic_vectors", "run.rounds=3"], told.append)
    assert told == []


def test_the_command_tells_it(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(RECIPE)
    shown = consort("inspect", path, "--set", "data.name=synthetic_shapes", "--quiet",
                    "--out", tmp_path / "page.html")  # fmt: skip
    assert "--set data.name=synthetic_shapes leaves out data.classes = 4" in shown.err


def test_what_is_dropped_is_what_merging_loses():
    table = {
        "partition": {"by": "dirichlet", "alpha": 0.3, "test": 0.2},
        "model": {"name": "a", "x": 1},
    }
    changes = {"partition": {"by": "iid"}, "model": {"name": "b", "x": 2}}
    assert dropped(table, changes) == {"partition.alpha": 0.3}
    assert merged(table, changes) == {
        "partition": {"by": "iid", "test": 0.2}, "model": {"name": "b", "x": 2},
    }  # fmt: skip


@pytest.mark.parametrize("command", ["run", "compare"])
def test_a_misspelt_metric_has_its_file_and_line(tmp_path, command):
    path = tmp_path / "tiny.toml"
    claims = 'claims = [\n  "accuracy(ditto) > 0",\n  "acuracy(ditto) > accuracy(fedavg)",\n]\n'
    path.write_text(RECIPE.replace("clients = 3", f"{claims}clients = 3"))
    shown = consort(command, path, "--out", tmp_path / "out", "--quiet")
    assert shown.code == 2
    assert shown.error.startswith(
        f"error: {path}, line 5: claim `acuracy(ditto) > accuracy(fedavg)`: this comparison has no "
        "metric `acuracy`; did you mean `accuracy`? (there are: accuracy, "
    )
    assert not (tmp_path / "out").exists()


def test_a_full_disk_without_a_path(monkeypatch, tmp_path, capsys):
    from consort import cli

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("consort.cli.app.app", full)
    monkeypatch.setattr(sys, "argv", ["consort", "run"])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 1
    told = capsys.readouterr().err
    assert "the disk is full, in the folder of the results or in that of temporary files" in told
    assert "repeat the command; finished rounds are not lost" in told
