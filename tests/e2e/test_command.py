"""Every command from its arguments to what it prints and leaves behind."""

from __future__ import annotations

import json
import os
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from tests.unit.cli.command import consort, measured, server_bytes, write_recipe

import consort as package
from consort.experiment.shipped import shipped_recipes
from consort.results.result import Result
from consort.run.history import History

PUBLISHED = """
[[published]]
source = "A paper, Table 3"
metric = "accuracy"
values = { fedavg = 61.2 }
"""
COMMANDS = (
    "demo", "run", "compare", "resume", "report", "inspect", "list", "export", "enroll", "verify",
)  # fmt: skip
QUICK = ("--set", "run.rounds=1", "--set", "data.examples=120", "--set", "data.size=16")


@pytest.fixture(scope="module")
def ran(tmp_path_factory) -> Path:
    """A folder with `tiny.toml` and, in `out`, what one run of its first algorithm left."""
    folder = tmp_path_factory.mktemp("ran")
    assert consort("run", write_recipe(folder), "--out", folder / "out", "--quiet").code == 0
    return folder


def test_run_trains_the_first_algorithm_with_the_first_seed(tmp_path: Path):
    recipe = write_recipe(tmp_path, ("clients = 3", "clients = 3\nseeds = [4, 5]"))
    found = consort("run", recipe, "--out", tmp_path / "out")
    assert found.code == 0
    folder = tmp_path / "out" / "fedavg" / "seed-4"
    assert {path.name for path in folder.iterdir()} == {
        "run.json", "partition.json", "history.jsonl", "report.html", "round-000001.ckpt",
        "round-000002.ckpt", ".lock",
    }  # fmt: skip
    assert "tiny (1 seed, test data)" in found.out
    accuracy = Result.load(folder).value("accuracy")
    (line,) = (line for line in found.out.splitlines() if "│ fedavg " in line)
    assert f"{accuracy:.3f}" in line
    assert found.out.splitlines()[-1] == f"report: {folder / 'report.html'}"
    assert "fedavg, seed 4" in found.err
    assert "round 2 of 2" in found.err


def test_run_takes_an_algorithm_a_seed_a_scale_and_changes(tmp_path: Path):
    recipe = write_recipe(tmp_path, more="[scales.desk]\nrun.rounds = 1\nlocal.lr = 0.5")
    found = consort(
        "run", recipe, "--algorithm", "ditto", "--seed", 7, "--scale", "desk",
        "--set", "local.lr=0.25", "--set", "clients=4", "--out", tmp_path / "out", "--quiet",
    )  # fmt: skip
    assert found.code == 0
    about = json.loads((tmp_path / "out" / "ditto" / "seed-7" / "run.json").read_text())
    assert (about["algorithm"], about["seed"], about["rounds"]) == ("ditto", 7, 1)
    assert about["recipe"]["local"] == {"lr": 0.25}
    assert len(about["clients"]) == 4


def test_without_a_folder_results_go_to_runs(tmp_path: Path, monkeypatch):
    recipe = write_recipe(tmp_path, more="[scales.desk]\nrun.rounds = 1")
    monkeypatch.chdir(tmp_path)
    assert consort("run", recipe, "--quiet").code == 0
    assert (tmp_path / "runs" / "tiny" / "fedavg" / "seed-0" / "run.json").is_file()
    assert consort("run", recipe, "--quiet", "--scale", "desk").code == 0
    assert (tmp_path / "runs" / "tiny-desk" / "fedavg" / "seed-0" / "run.json").is_file()


def test_workers_change_nothing_but_the_time(ran: Path, tmp_path: Path):
    arguments = ("run", ran / "tiny.toml", "--workers", 3, "--out", tmp_path, "--quiet")
    assert consort(*arguments).code == 0
    one, three = (root / "fedavg" / "seed-0" for root in (ran / "out", tmp_path))
    assert measured(one) == measured(three)
    assert server_bytes(one) == server_bytes(three)


def test_running_again_shows_the_same(ran: Path):
    arguments = ("run", ran / "tiny.toml", "--out", ran / "out", "--json")
    first, second = consort(*arguments), consort(*arguments)
    assert first.out == second.out != ""


def test_quiet_prints_nothing(ran: Path, tmp_path: Path):
    for arguments in (
        ["run", ran / "tiny.toml", "--out", tmp_path],
        ["compare", ran / "tiny.toml", "--out", tmp_path],
        ["resume", tmp_path / "fedavg" / "seed-0"],
        ["inspect", ran / "tiny.toml", "--out", tmp_path / "page.html"],
    ):
        found = consort(*arguments, "--quiet")
        assert (found.code, found.out, found.err) == (0, "", "")


def test_json_of_a_run_is_what_was_measured(ran: Path):
    folder = ran / "out" / "fedavg" / "seed-0"
    found = consort("resume", folder, "--json", "--quiet")
    data = json.loads(found.out)
    (run,) = data["runs"]
    result = Result.load(folder)
    assert (run["algorithm"], run["seed"], run["folder"]) == ("fedavg", 0, str(folder))
    for name in result.metric_names():
        assert run[name] == result.value(name)
    assert data["claims"] == []
    assert data["report"] == str(folder / "report.html")
    total = sum(row.value for row in History(folder / "history.jsonl") if "bytes" in row.metric)
    assert run["bytes"] == run["bytes_up"] + run["bytes_down"] == total


def test_compare_is_the_table_of_a_paper(tmp_path: Path):
    claims = ["bytes(ditto) <= bytes(fedavg)", "bytes(ditto) < bytes(fedavg)"]
    top = f"clients = 3\nseeds = [2, 5]\nclaims = {claims!r}"
    recipe = write_recipe(tmp_path, ("clients = 3", top), more=PUBLISHED)
    found = consort("compare", recipe, "--out", tmp_path / "out")
    assert found.code == 0
    root = tmp_path / "out"
    assert "tiny (2 seeds, test data)" in found.out
    for name in ("fedavg", "ditto"):
        values = [Result.load(root / name / f"seed-{seed}").value("accuracy") for seed in (2, 5)]
        (line,) = (line for line in found.out.splitlines() if f"│ {name} " in line)
        assert f"{np.mean(values):.3f}" in line
        assert ("0.612" in line) == (name == "fedavg")
    lines = [line for line in found.out.splitlines() if "bytes(ditto)" in line]
    assert [line.split()[0] for line in lines] == ["holds", "fails"]
    assert found.out.splitlines()[-1] == f"report: {root / 'report.html'}"
    for shown in ("fedavg, seed 2", "ditto, seed 2", "fedavg, seed 5", "ditto, seed 5"):
        assert shown in found.err
    again = json.loads(consort("compare", recipe, "--out", root, "--json").out)
    assert [(run["algorithm"], run["seed"]) for run in again["runs"]] == [
        ("fedavg", 2), ("ditto", 2), ("fedavg", 5), ("ditto", 5),
    ]  # fmt: skip
    assert [(c["claim"], c["outcome"]) for c in again["claims"]] == [
        (claims[0], "holds"), (claims[1], "fails"),
    ]  # fmt: skip


def test_compare_takes_some_algorithms_and_other_seeds(tmp_path: Path):
    arguments = ("compare", write_recipe(tmp_path), "--algorithms", "ditto", "--seeds", 2)
    found = json.loads(consort(*arguments, "--out", tmp_path / "out", "--json").out)
    assert [(run["algorithm"], run["seed"]) for run in found["runs"]] == [
        ("ditto", 0),
        ("ditto", 1),
    ]
    assert not (tmp_path / "out" / "fedavg").exists()


def test_algorithms_of_one_seed_see_the_same_federation(tmp_path: Path):
    assert consort("compare", write_recipe(tmp_path), "--out", tmp_path / "out").code == 0
    one, other = (
        json.loads((tmp_path / "out" / name / "seed-0" / "run.json").read_text())
        for name in ("fedavg", "ditto")
    )
    assert one["partition"] == other["partition"]
    assert one["clients"] == other["clients"]


def test_clients_with_unlike_tasks_in_a_hurry(tmp_path: Path):
    """A shipped recipe, with fewer and smaller pictures."""
    recipe = "examples/unlike_tasks"
    found = consort("compare", recipe, "--seeds", 1, *QUICK, "--out", tmp_path, "--json")
    assert found.code == 0, found.err
    runs = json.loads(found.out)["runs"]
    assert [run["algorithm"] for run in runs] == ["local_only", "fedper", "fedrep"]
    assert all(0 <= run["accuracy"] <= 1 for run in runs)
    assert runs[0]["bytes"] == 0 < runs[1]["bytes"] == runs[2]["bytes"]
    about = json.loads((tmp_path / "fedper" / "seed-0" / "run.json").read_text())
    tasks = {name: client["tasks"] for name, client in about["clients"].items()}
    assert tasks["both-0"] == ["shape", "texture"]
    assert tasks["shape-1"] == ["shape"]
    assert tasks["texture-0"] == ["texture"]
    assert (tmp_path / "report.html").stat().st_size > 10_000


def test_report_of_runs_and_comparisons(ran: Path, tmp_path: Path):
    folder = ran / "out" / "fedavg" / "seed-0"
    (folder / "report.html").unlink()
    found = consort("report", folder)
    assert (found.code, found.out) == (0, f"{folder / 'report.html'}\n")
    assert (folder / "report.html").read_text().startswith("<!doctype html>")
    page = tmp_path / "pages" / "both.html"
    page.parent.mkdir()
    second = tmp_path / "second"
    arguments = ("run", ran / "tiny.toml", "--algorithm", "ditto", "--out", second, "--quiet")
    assert consort(*arguments).code == 0
    assert consort("report", ran / "out", second, "--out", page).out == f"{page}\n"
    text = page.read_text()
    assert "fedavg" in text
    assert "ditto" in text


def test_report_of_a_run_that_still_goes_on(tmp_path: Path):
    """Rows of the third round are just being written; its checkpoint follows."""
    recipe = write_recipe(tmp_path)
    assert consort("run", recipe, "--out", tmp_path / "out", "--quiet").code == 0
    folder = tmp_path / "out" / "fedavg" / "seed-0"
    lines = (folder / "history.jsonl").read_text().splitlines(keepends=True)
    more = "".join(line.replace('"round":2', '"round":3') for line in lines)
    with (folder / "history.jsonl").open("a") as history:
        history.write(more[:-20])
    assert consort("report", folder).code == 0
    assert Result.load(folder).last_round == 2


def test_inspect_shows_who_holds_what(ran: Path, tmp_path: Path):
    found = consort("inspect", ran / "tiny.toml", "--out", tmp_path / "page.html")
    assert found.code == 0
    about = json.loads((ran / "out" / "fedavg" / "seed-0" / "run.json").read_text())
    for name, client in about["clients"].items():
        (line,) = (line for line in found.out.splitlines() if name in line)
        for value in ("classify", "mlp(hidden=(8,))", *map(str, (client["train"], client["test"]))):
            assert value in line
    assert f"3 clients, partition {about['partition']}" in found.out
    assert found.out.splitlines()[-1] == f"page: {tmp_path / 'page.html'}"
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")


def test_inspect_as_json_is_the_description_of_the_run(ran: Path, tmp_path: Path):
    arguments = ("inspect", ran / "tiny.toml", "--out", tmp_path / "page.html", "--json")
    about = json.loads((ran / "out" / "fedavg" / "seed-0" / "run.json").read_text())
    shown = json.loads(consort(*arguments).out)
    assert shown == {key: about[key] for key in shown}
    assert set(shown) == {"title", "recipe", "partition", "tasks", "clients"}
    other = json.loads(consort(*arguments, "--seed", 1).out)
    assert other["partition"] != shown["partition"]


def test_inspect_of_many_clients_shows_some(tmp_path: Path):
    recipe = write_recipe(tmp_path, ("clients = 3", "clients = 45"), ("= 90", "= 900"))
    found = consort("inspect", recipe, "--out", tmp_path / "page.html")
    assert "client-39" in found.out
    assert "client-40" not in found.out
    assert "and 5 more" in found.out


def test_inspect_tells_how_unlike_the_clients_are(tmp_path: Path):
    recipe = write_recipe(tmp_path, ("= 90", "= 900"))
    page = ("--out", tmp_path / "page.html")
    alike = consort("inspect", recipe, *page).out
    skewed = ("--set", "partition.by=classes", "--set", "partition.classes_per_client=1")
    unlike = consort("inspect", recipe, *page, *skewed).out
    assert "label skew 0.0" in alike
    assert "label skew 0.67" in unlike, "each has one class, of which all hold a third"


def test_data_come_from_the_folder_that_the_environment_names(tmp_path: Path):
    rng = np.random.default_rng(0)
    folder = tmp_path / "data" / "images"
    folder.mkdir(parents=True)
    np.savez(
        folder / "femnist_digits_12clients.npz",
        x=rng.integers(0, 255, (90, 28, 28), dtype=np.uint8),
        y=rng.integers(0, 10, 90),
        client=np.arange(90) % 3,
    )
    data = 'name = "synthetic_vectors"\nclasses = 4\nexamples = 90\nfeatures = 6'
    recipe = write_recipe(tmp_path, (data, 'name = "femnist"'), more="[partition]\nby = 'natural'")
    command = ("run", recipe, "--out", tmp_path / "out", "--data", tmp_path / "data", "--quiet")
    assert consort(*command).code == 0
    run = tmp_path / "out" / "fedavg" / "seed-0"
    assert json.loads((run / "run.json").read_text())["data"] == str((tmp_path / "data").resolve())
    with patch.dict(os.environ, {"CONSORT_DATA": "/nowhere"}):
        assert consort("resume", run, "--quiet").code == 0


@pytest.mark.parametrize(("what", "names"), [
    ("algorithms", ["centralised", "ditto", "fedavg", "fedavg_ft", "fedbabu", "fedper", "fedprox",
                    "fedrep", "local_only", "scaffold"]),
    ("models", ["cnn4", "mlp", "resnet", "textcnn"]),
    ("datasets", ["ag_news", "cifar10", "femnist", "synthetic_images", "synthetic_news",
                  "synthetic_shapes", "synthetic_vectors", "synthetic_writers"]),
    ("tasks", ["classification"]),
    ("recipes", list(shipped_recipes())),
    ("metrics", ["accuracy", "balanced_accuracy", "loss", "seconds", "peak_memory_mib"]),
])  # fmt: skip
def test_lists_name_everything_with_a_line(what, names):
    found = consort("list", what)
    assert (found.code, found.err) == (0, "")
    listed = dict(line.split(maxsplit=1) for line in found.out.splitlines())
    assert set(names) <= set(listed)
    assert all(listed.values())


def test_the_version():
    assert consort("--version").out == f"{package.__version__}\n"


@pytest.mark.parametrize("arguments", [["--help"], []])
def test_help_names_every_command(arguments):
    found = consort(*arguments)
    for command in COMMANDS:
        assert f"\n  {command} " in found.out + found.err


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command):
    found = consort(command, "--help")
    assert found.code == 0
    assert f"consort {command} [OPTIONS]" in found.out
