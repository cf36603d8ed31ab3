"""Runs from Python: the same folder, report, resuming, export and audit as those of a recipe."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from tests.helpers import assert_same, tiny_federation, two_task_federation
from tests.unit.cli.command import RECIPE, TIMING, consort

import consort as package
from consort import History, LocalTraining, Recipe, Run, Schedule, UsageError, load_model
from consort.algorithms.centralised import Centralised
from consort.algorithms.ditto import Ditto
from consort.algorithms.fedavg import FedAvg
from consort.algorithms.fedper import FedPer
from consort.attacks.audit import audit
from consort.core.params import Params
from consort.experiment.loading import load_recipe
from consort.protection.robust import Robust
from consort.results.result import Result
from consort.run.observer import Observer
from consort.use.export import export

LOCAL = LocalTraining(lr=0.1)


def rows(folder):
    return [row for row in History(folder / "history.jsonl") if row.metric not in TIMING]


def quiet(clients, *arguments, **options):
    return package.compare(clients, *arguments, progress=False, **options)


@pytest.fixture
def made(tmp_path):
    algorithms = [FedAvg(LOCAL), Ditto(LOCAL)]
    return quiet(tiny_federation(3), algorithms, 2, seeds=(0, 1), folder=tmp_path / "made",
                 title="Three clients", claims=["accuracy(ditto) > accuracy(fedavg)"])  # fmt: skip


def test_the_folder_is_like_that_of_a_recipe(made, tmp_path):
    folder = tmp_path / "made" / "ditto" / "seed-1"
    assert made.runs["ditto", 1].folder == folder
    about = json.loads((folder / "run.json").read_text())
    assert (about["algorithm"], about["kind"], about["seed"], about["rounds"]) == (
        "ditto", "Ditto", 1, 2,
    )  # fmt: skip
    assert about["title"] == "Three clients"
    assert about["tasks"]["classify"] == {
        "kind": "Classification", "metric": "accuracy", "higher_is_better": True,
    }  # fmt: skip
    assert about["clients"]["c1"]["train"] == 31
    assert sum(about["clients"]["c1"]["labels"].values()) == 51
    assert about["recipe"]["algorithms"]["ditto"]["local"]["lr"] == 0.1
    assert about["recipe"]["run"]["rounds"] == 2


def test_commands_read_it(made, tmp_path):
    folder = tmp_path / "made"
    shown = consort("report", folder)
    assert (shown.code, shown.out) == (0, f"{folder / 'report.html'}\n")
    assert "Three clients" in (folder / "report.html").read_text()
    assert consort("table", folder, "--test", "t").code == 0


@pytest.mark.parametrize("command", [
    ["resume"],
    ["export", "--client", "c0", "--out", "model.pt"],
    ["audit"],
])  # fmt: skip
def test_commands_that_need_its_clients_say_where_they_are(made, tmp_path, command):
    folder = tmp_path / "made" / "fedavg" / "seed-0"
    if command == ["audit"]:
        Result.load(folder)
    shown = consort(command[0], folder, *command[1:])
    assert shown.code == 2
    assert f"{folder} was made in Python: its clients are known only there" in shown.err


def test_a_recipe_does_not_continue_it(made, tmp_path):
    (tmp_path / "tiny.toml").write_text(RECIPE)
    shown = consort("run", tmp_path / "tiny.toml", "--out", tmp_path / "made")
    assert (shown.code, "was made in Python" in shown.err) == (2, True)


def test_it_is_exported_and_audited_by_its_objects(made, tmp_path):
    run = made.runs["fedavg", 0]
    exported = export(run, "c0", tmp_path / "model.pt")
    assert exported.metadata.client == "c0"
    assert exported.difference < 1e-4
    assert audit(run, steps=1).reproduced
    model = load_model(run, "c0")
    assert_same(Params.of(model), run.server.model)
    assert not model.training
    assert made.model("c0", "fedavg")(torch.zeros(2, 8))["classify"].shape == (2, 3)


def test_models_are_found_by_algorithm_and_seed(made):
    with pytest.raises(UsageError, match="name one of the algorithms: fedavg, ditto"):
        made.model("c0")
    with pytest.raises(UsageError, match="did you mean 'ditto'"):
        made.model("c0", "dito")
    with pytest.raises(UsageError, match="ditto has no seed 7; there are 0, 1"):
        made.model("c0", "ditto", 7)
    with pytest.raises(UsageError, match="did you mean 'c0'"):
        made.model("c00", "ditto")


def test_a_run_that_was_stopped_goes_on(tmp_path):
    class Stops(Observer):
        def measured(self, round, rows):
            if round == 2:
                raise KeyboardInterrupt

    straight = quiet(tiny_federation(3), [Ditto(LOCAL)], 4, folder=tmp_path / "a")
    with pytest.raises(KeyboardInterrupt):
        quiet(tiny_federation(3), [Ditto(LOCAL)], 4, folder=tmp_path / "b", observer=Stops())
    again = quiet(tiny_federation(3), [Ditto(LOCAL)], 4, folder=tmp_path / "b")
    assert rows(again.run.folder) == rows(straight.run.folder)
    assert_same(again.run.server, straight.run.server)


@pytest.mark.parametrize(("change", "words"), [
    ({"algorithms": {"fedavg": FedAvg(LocalTraining(lr=0.2))}},
     r"another recipe\.algorithms\.fedavg\.local\.lr \(0\.1, now 0\.2\)"),
    ({"clients": tiny_federation(4)}, "another partition"),
    ({"rounds": Schedule(2, participation=0.5)}, r"another recipe\.run\.participation"),
    ({"algorithms": {"fedavg": FedPer(LOCAL)}}, "another kind"),
])  # fmt: skip
def test_another_run_is_not_continued(made, tmp_path, change, words):
    same = {"clients": tiny_federation(3), "algorithms": {"fedavg": FedAvg(LOCAL)}, "rounds": 2}
    quiet(*same.values(), folder=tmp_path / "made")
    with pytest.raises(UsageError, match=words):
        quiet(*(same | change).values(), folder=tmp_path / "made")


def test_protections_are_settings(tmp_path):
    federation = tiny_federation(3).protected(Robust("median"))
    about = quiet(federation, [FedAvg(LOCAL)], 1, folder=tmp_path).result.about
    assert about["robust"]["rule"] == about["recipe"]["robust"]["rule"] == "median"


def test_pooled_data_are_described_by_their_clients(tmp_path):
    result = quiet(tiny_federation(3), [Centralised(LOCAL)], 1, folder=tmp_path).result
    assert list(result.clients) == ["c0", "c1", "c2"]


def test_recipes_give_what_the_command_gives(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(RECIPE)
    consort("compare", path, "--out", tmp_path / "command", "--quiet")
    made = quiet(path, folder=tmp_path / "python")
    assert list(made.runs) == [("fedavg", 0), ("ditto", 0)]
    for name, seed in made.runs:
        place = f"{name}/seed-{seed}"
        assert rows(tmp_path / "python" / place) == rows(tmp_path / "command" / place)
    assert load_model(str(tmp_path / "command" / "ditto" / "seed-0"), "client-0")
    one = package.train(
        load_recipe(path), "ditto", seed=0, folder=tmp_path / "python", progress=False
    )
    assert one.result.algorithm == "ditto"
    assert isinstance(load_recipe(path), Recipe)


def test_without_a_folder_nothing_stays():
    made = quiet(tiny_federation(2), [FedAvg(LOCAL)], 1)
    folder = made.folder
    assert made.result.last_round == 1
    assert folder.is_dir()
    del made
    assert not folder.exists()


def test_seeds_of_one_federation_differ_in_initial_weights_only(made):
    first, second = (made.runs["fedavg", seed].federation for seed in (0, 1))
    assert not torch.equal(*(f.initial("c0")["encoder.layers.0.weight"] for f in (first, second)))
    assert torch.equal(*(f.data("c0").train.inputs for f in (first, second)))
    makes = quiet(lambda seed: tiny_federation(2 + seed, seed=seed), [FedAvg()], 1, seeds=(0, 1))
    assert [len(result.clients) for result in makes.results] == [2, 3]


def test_what_cannot_be_run_is_refused_before_anything_runs(tmp_path):
    with pytest.raises(UsageError, match="centralised: pooling the data needs one architecture"):
        quiet(two_task_federation(), [FedPer(LOCAL), Centralised(LOCAL)], 1, folder=tmp_path)
    assert not list(tmp_path.iterdir())
    for algorithms, words in (
        ([], "algorithms are objects"),
        (["fedavg"], "algorithms are objects"),
        ([FedAvg(), FedAvg(LOCAL)], "fedavg is there 2 times"),
    ):
        with pytest.raises(UsageError, match=words):
            quiet(tiny_federation(2), algorithms, 1)
    with pytest.raises(UsageError, match="did you mean `fedavg`"):
        quiet(tiny_federation(2), [FedAvg()], 1, claims=["accuracy(fedavgg) > 0"])
    with pytest.raises(UsageError, match="stand in the recipe"):
        quiet("demo", rounds=3)
    with pytest.raises(UsageError, match="names of those in it"):
        quiet("demo", [FedAvg()])


def test_a_run_without_a_folder_has_nothing_to_export():
    run = Run(tiny_federation(2), FedAvg(LOCAL), Schedule(1))
    run.go()
    with pytest.raises(UsageError, match="give it a folder"):
        load_model(run, "c0")


def test_one_of_several_must_be_named(made):
    for name in ("run", "result"):
        with pytest.raises(UsageError, match="there are several runs"):
            getattr(made, name)


def test_verdicts_and_report(made):
    (verdict,) = made.verdicts()
    assert verdict.claim == "accuracy(ditto) > accuracy(fedavg)"
    assert verdict.claim.replace(">", "&gt;") in made.report().read_text()


def test_tables(made):
    assert made.table("latex", test="t").count(r"\pm") == 2


def test_a_notebook_shows_a_table_and_curves(made):
    html = made._repr_html_()
    assert html.count("<tr>") == 3
    assert html.count("<svg") == 1
    assert "<script" not in html
    assert html.count("<polyline") == 3  # the axes and two curves


def test_progress_is_one_line_per_round(tmp_path, capsys):
    package.train(tiny_federation(2), FedAvg(LOCAL), 2, folder=tmp_path)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("fedavg, seed 0: round 1 of 2, test accuracy 0.")
    assert lines[2] == "fedavg, seed 0: finished"


def test_federations_that_differ_only_in_seed_share_nothing(made):
    assert replace(tiny_federation(3), seed=1).seed == made.runs["fedavg", 1].federation.seed
