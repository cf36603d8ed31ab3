"""A run that is opened stays as it is, and nothing is loaded before it is asked for."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tests.unit.cli.command import RECIPE, consort, write_recipe

from consort.core.sealed import write_json
from consort.errors import Failure, UsageError
from consort.experiment.loading import load_recipe
from consort.experiment.opening import open_run
from consort.experiment.preparation import prepare_run
from consort.use.persons import model_file

OWN_DATA = """
from pathlib import Path
from consort.data.registry import load_dataset

def mine(folder: Path):
    return load_dataset("synthetic_vectors", int((folder / "seed").read_text()), None,
                        classes=4, examples=90, features=6)
"""


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    """A finished run of data in a folder; an older title makes `run.json` worth rewriting."""
    (tmp_path / "mine.py").write_text(OWN_DATA)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "seed").write_text("7")
    text = RECIPE.partition("[data]")[0] + '[data]\nname = "mine.py:mine"\n[model]'
    (tmp_path / "tiny.toml").write_text(text + RECIPE.partition("[model]")[2])
    recipe = load_recipe(tmp_path / "tiny.toml")
    folder = tmp_path / "run"
    prepare_run(recipe, "ditto", 0, folder, tmp_path / "data").go()
    return folder


def state_of(folder: Path) -> dict[Path, tuple[bytes, int]]:
    """Every file with its content and its age."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def unwritable(folder: Path) -> None:
    for path in (*folder.rglob("*"), folder):
        path.chmod(0o500 if path.is_dir() else 0o400)


@pytest.mark.parametrize(
    "command",
    [
        ("report", "RUN", "--out", "OUT/report.html"),
        ("audit", "RUN", "--out", "OUT/audit.html"),
        ("export", "RUN", "--client", "client-1", "--out", "OUT/model.pt"),
        ("export", "RUN", "--client", "client-1", "--out", "OUT/model.safetensors"),
    ],
)
def test_a_run_is_read_and_nothing_in_its_folder_changes(command, finished, tmp_path):
    written = json.loads((finished / "run.json").read_text())
    del written["recipe"]["unseen"]  # a key that came later
    write_json(finished / "run.json", written)
    before = state_of(finished)
    (tmp_path / "out").mkdir()
    unwritable(finished)
    words = [w.replace("RUN", str(finished)).replace("OUT", str(tmp_path / "out")) for w in command]
    found = consort(*words)
    assert found.code == 0, found.err
    assert state_of(finished) == before
    assert any((tmp_path / "out").iterdir())


def test_enrolling_adds_a_model_and_changes_nothing_else(finished):
    before = state_of(finished)
    added = model_file(finished, "client-0")
    after = state_of(finished)
    assert after.keys() - before.keys() == {added}
    assert {path: after[path] for path in before} == before


def test_a_report_needs_no_data(finished, tmp_path):
    shutil.rmtree(tmp_path / "data")
    (tmp_path / "mine.py").unlink()
    assert consort("report", finished).code == 0
    opened = open_run(finished)
    assert opened.about["algorithm"] == "ditto"
    assert opened.result.last_round == 2
    with pytest.raises(UsageError, match=r"there is no file .*mine\.py"):
        _ = opened.run


def test_data_that_have_changed_are_not_taken_for_those_of_the_run(tmp_path):
    prepare_run(load_recipe(write_recipe(tmp_path)), "fedavg", 0, tmp_path / "run")
    path = tmp_path / "run" / "run.json"
    write_json(path, json.loads(path.read_text().replace('"examples": 90', '"examples": 80')))
    assert open_run(tmp_path / "run").recipe.data["examples"] == 80
    with pytest.raises(Failure, match="the data are not those of the run any more"):
        _ = open_run(tmp_path / "run").run


def test_an_opened_run_has_its_clients_and_its_last_checkpoint(finished):
    run = open_run(finished).run
    assert run.federation.client_ids == ("client-0", "client-1", "client-2")
    saved = run.saved()
    assert saved is not None
    assert saved["round"] == 2
    assert type(run.algorithm).__name__ == "Ditto"


def test_a_run_among_institutions_has_no_clients_here(finished):
    written = json.loads((finished / "run.json").read_text()) | {"engine": "flower"}
    write_json(finished / "run.json", written)
    with pytest.raises(UsageError, match="is a run of consort server: its clients are elsewhere"):
        _ = open_run(finished).run


def test_no_run(tmp_path):
    with pytest.raises(UsageError, match="holds no run"):
        open_run(tmp_path)
