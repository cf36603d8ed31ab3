"""The example of a plug-in: installed by pip, listed, and run, in workers as well."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "plugin"
COMMAND = [sys.executable, "-c", "from consort.cli import main; main()"]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder of packages with the example in it."""
    pytest.importorskip("setuptools")
    source, site = (tmp_path_factory.mktemp(name) for name in ("source", "site"))
    shutil.copytree(EXAMPLE, source, dirs_exist_ok=True)  # pip builds there
    offline = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet"]
    command = [sys.executable, "-m", "pip", "install", *offline, "--target", site, source]
    subprocess.run(command, check=True, capture_output=True)
    return site


def consort(site: Path, *arguments: object) -> str:
    path = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
    command = [*COMMAND, *map(str, arguments)]
    env = os.environ | {"PYTHONPATH": path}
    return subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize(("kind", "name"), [
    ("algorithms", "slow_fedavg"),
    ("datasets", "waves"),
    ("models", "spectrum"),
    ("tasks", "frequency"),
    ("metrics", "error"),
])  # fmt: skip
def test_what_the_package_brings_is_listed(site, kind, name):
    lines = [line for line in consort(site, "list", kind).splitlines() if line.startswith(name)]
    assert len(lines) == 1
    assert lines[0].endswith(" [consort-waves]")


def test_a_recipe_runs_with_all_of_it_in_workers_as_well(site, tmp_path):
    errors = []
    for workers in (1, 2):
        folder = tmp_path / str(workers)
        options = ["--set", "run.rounds=3", "--workers", workers, "--out", folder]
        out = consort(site, "compare", EXAMPLE / "waves.toml", *options, "--json", "--quiet")
        errors.append({run["algorithm"]: run["error"] for run in json.loads(out)["runs"]})
        about = json.loads((folder / "slow_fedavg" / "seed-0" / "run.json").read_text())
        assert about["tasks"]["swing"]["kind"] == "Frequency"
        assert {client["model"] for client in about["clients"].values()} == {"spectrum(width=32)"}
    assert errors[0] == errors[1]
    assert errors[0].keys() == {"slow_fedavg", "fedavg"}


def test_a_run_says_what_is_missing_where_the_package_is_not_installed(site, tmp_path):
    folder = tmp_path / "run"
    recipe = EXAMPLE / "waves.toml"
    consort(site, "run", recipe, "--algorithm", "slow_fedavg", "--set", "run.rounds=1",
            "--out", folder, "--quiet")  # fmt: skip
    with pytest.raises(subprocess.CalledProcessError) as caught:
        consort(tmp_path, "resume", folder / "slow_fedavg" / "seed-0")
    assert "install that package" in caught.value.stderr
