"""Test images with the answers of trained models, in runs that were really made."""

from __future__ import annotations

import base64
import io
import json
import re
import shutil
from functools import cache

import numpy as np
import pytest
import torch
from PIL import Image

from consort.core.sealed import write_json
from consort.domains.scenes.tasks.dense import IGNORED
from consort.experiment.loading import recipe_of
from consort.experiment.opening import open_run
from consort.experiment.preparation import prepare_run
from consort.experiment.trained import reported_model
from consort.report.examples import examples
from consort.report.predictions import IMAGES, comparable_runs, predictions, shown_clients
from consort.report.rendering import RENDERERS
from consort.report.run_set import RunSet
from consort.results.result import Result

NAMES = ("fedavg_parts", "local_only")


def recipe():
    table = {
        "title": "scenes",
        "batchnorm": "local",
        "groups": [
            {"name": "parts", "count": 2, "tasks": ["parts"]},
            {"name": "several", "count": 1, "tasks": ["segment", "depth"]},
        ],
        "data": {"name": "synthetic_scenes", "examples": 60, "size": 32},
        "partition": {"validation": 0.1, "test": 0.4},
        "model": {"name": "conv_pyramid", "widths": [4, 8], "channels": 8},
        "run": {"rounds": 1},
        "local": {"lr": 0.01, "batch": 8},
        "algorithms": {name: {} for name in NAMES},
    }
    return recipe_of(table, "scenes.toml")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scenes")
    for name in NAMES:
        prepare_run(recipe(), name, 0, folder / name).go()
    return folder


def study_of(root):
    return RunSet.of([Result.load(root / name) for name in NAMES])


@cache
def federation(folder):
    return open_run(folder).run.federation


def pictures(html):
    """Every picture with what it is called."""
    found = re.findall(r'<img src="data:image/png;base64,([^"]+)" alt="([^"]+)">', html)
    return {
        name: np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB"))
        for data, name in found
    }


def unbroken(html):
    """Without the places where a line may end."""
    return html.replace("<wbr>", "")


def test_one_client_of_each_group_and_training_alone_first(root):
    run_set = study_of(root)
    assert shown_clients(run_set.first) == ["parts-0", "several-0"]
    assert list(comparable_runs(run_set)) == ["local_only", "fedavg_parts"]
    html = examples(run_set)
    assert re.findall(r"<h3>(.*?)</h3>", html) == [
        "parts of parts-0, miou",
        "segment of several-0, miou",
        "depth of several-0, rmse",
    ]
    columns = re.findall(r"<figcaption><div>([\w ]+)</div><span>(.*?)</span>", unbroken(html))
    names = ["input", "ground truth", "local_only", "fedavg_parts"]
    assert [name for name, _ in columns] == names * 3
    value = run_set.first.clients_at(1, "parts")["parts-0"]
    assert columns[3][1] == f"{value:.3f}"
    assert len(pictures(html)) == 3 * 4 * IMAGES


def test_the_pictures_are_of_the_test_images_and_their_labels(root):
    shown = pictures(examples(study_of(root)))
    test = federation(root / NAMES[0]).data("several-0").test
    low, high = test.inputs[0].min(), test.inputs[0].max()
    inputs = ((test.inputs[0] - low) / (high - low) * 255).byte().permute(1, 2, 0).numpy()
    drawn = shown["segment, input, image 1"].astype(int)
    assert abs(drawn - inputs).mean() < 8  # with fewer colours
    truth = RENDERERS["Segmentation"].truth(test.targets["segment"][:1], (32, 32))[0]
    expected = (truth * 255).round().byte().permute(1, 2, 0).numpy()
    assert (shown["segment, ground truth, image 1"] == expected).all()


def test_the_answers_are_those_of_the_reported_model(root):
    found = predictions(study_of(root)).found["several-0"]["fedavg_parts"]
    run = open_run(root / "fedavg_parts").run
    model = reported_model(run, "several-0").model.eval()
    test, tasks = run.federation.data("several-0").test, run.federation.members["several-0"].tasks
    with torch.inference_mode():
        expected = model(test.inputs[:IMAGES], tasks)
    assert len(test) > IMAGES == len(found.test)
    for task, output in expected.items():
        assert torch.equal(found.outputs[task], output)


def test_images_without_any_label_are_not_shown(root):
    test = federation(root / NAMES[0]).data("parts-0").test.targets["parts"]
    blank = (test == IGNORED).flatten(1).all(1)
    assert bool(blank[: IMAGES + 1].any())  # else this says nothing
    shown = predictions(study_of(root)).found["parts-0"]["local_only"].test.targets["parts"]
    assert torch.equal(shown, test[~blank][:IMAGES])


def test_a_run_without_checkpoints_is_left_out_in_words(root, tmp_path):
    copy = shutil.copytree(root, tmp_path / "copy")
    for file in (copy / "local_only").glob("round-*.ckpt"):
        file.unlink()
    html = examples(study_of(copy))
    assert "No predictions of local_only: " in html
    assert "its checkpoint is gone" in html
    assert "<div>fedavg_<wbr>parts</div>" in html
    names = re.findall(r"<figcaption><div>([\w ]+)<", unbroken(html))
    assert names[:3] == ["input", "ground truth", "fedavg_parts"]


def test_without_the_data_there_is_only_the_reason(root, tmp_path):
    copy = shutil.copytree(root, tmp_path / "copy")
    for name in NAMES:
        path = copy / name / "run.json"
        about = json.loads(path.read_text())
        about["recipe"]["data"] = {"name": "taskonomy"}
        write_json(path, about | {"data": str(tmp_path / "nowhere")})
    html = examples(study_of(copy))
    assert len(re.findall(r"No predictions of \w+: .*?nowhere", html)) == 2
    assert "<img" not in html
    assert "Lilac" not in html


def test_clients_of_a_server_keep_their_images(root, tmp_path):
    copy = shutil.copytree(root, tmp_path / "copy")
    path = copy / "local_only" / "run.json"
    write_json(path, json.loads(path.read_text()) | {"engine": "flower"})
    assert "the test images stay with the clients" in examples(study_of(copy))


def test_another_seed_has_other_images(root, tmp_path):
    prepare_run(recipe(), "fedavg_parts", 1, tmp_path / "other").go()
    runs = [Result.load(tmp_path / "other"), Result.load(root / "local_only")]
    assert list(comparable_runs(RunSet.of(runs))) == ["fedavg_parts"]


def test_a_report_changes_nothing_in_the_folder(root):
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    examples(study_of(root))
    assert before == {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
