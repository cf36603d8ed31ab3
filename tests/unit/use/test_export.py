"""What is written computes what the run's model computes, and says what it is."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from tests.unit.cli.command import write_recipe
from torch import nn

from consort import (
    Classification,
    Examples,
    Federation,
    LocalTraining,
    Member,
    Run,
    Schedule,
    Splits,
    Supervised,
)
from consort.algorithms.fedavg import FedAvg
from consort.domains.scenes.models.pyramid import ConvPyramid
from consort.domains.signatures.scan import Scan
from consort.errors import Failure, Refused, UsageError
from consort.experiment.loading import load_recipe
from consort.experiment.preparation import prepare_run
from consort.experiment.trained import load_model, trained_model
from consort.models.combined import Encoders
from consort.use import export as exporting
from consort.use.export import export
from consort.use.formats import LoadedModel, read_model
from consort.use.metadata import ModelMetadata


@pytest.mark.parametrize(("client", "suffix"), [("client-0", "pt"), ("client-1", "onnx")])
def test_a_file_computes_the_same_for_batches_of_any_size(run, client, suffix, tmp_path):
    path = tmp_path / "new" / f"model.{suffix}"
    exported = export(run, client, path)
    assert exported.difference < 1e-5
    trained = trained_model(run, client)
    assert exported.examples == len(trained.data.test)
    metadata, apply = read_model(path)
    assert metadata == exported.metadata
    for inputs in (trained.data.train.inputs, trained.data.test.inputs[:1]):
        with torch.inference_mode():
            found, expected = apply(inputs), trained.model.eval()(inputs)
            features = trained.model.encoder(inputs)
        for one, other in zip(found, (features, *expected.values()), strict=True):
            assert (one - other).abs().max() < 1e-5
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_the_facts_say_what_goes_in_and_what_comes_out(run, tmp_path):
    metadata = export(run, "client-1", tmp_path / "model.pt").metadata
    assert (metadata.client, metadata.algorithm, metadata.seed, metadata.round) == (
        "client-1", "local_only", 0, 2,
    )  # fmt: skip
    assert metadata.data == "synthetic_signatures"
    assert metadata.shape == (1, 32, 48)
    assert metadata.outputs == ("features", "identify", "detect")
    assert metadata.scan == Scan((32, 48), cleaned=False)
    assert ModelMetadata.of_json(metadata.to_json()) == metadata
    scanned = replace(metadata, scan=Scan((8, 9), (10, 11)))
    assert ModelMetadata.of_json(scanned.to_json()) == scanned
    with pytest.raises(Refused):
        ModelMetadata.of_json(json.dumps({"client": "me"}))


def test_any_model_can_be_exported(tmp_path):
    recipe = load_recipe(write_recipe(tmp_path))
    prepare_run(recipe, "fedavg", 0, tmp_path / "run").go()
    metadata = export(tmp_path / "run", "client-2", tmp_path / "model.pt").metadata
    assert (metadata.outputs, metadata.scan, metadata.calibration) == (
        ("features", "classify"),
        None,
        None,
    )


SCENES = """
title = "Scenes"
groups = [{ name = "some", count = 1, tasks = ["segment", "edges"] }]
data = { name = "synthetic_scenes", examples = 12, size = 32 }
model = { name = "conv_pyramid", widths = [4, 6], channels = 8 }
run = { rounds = 1 }

[algorithms.local_only]
"""


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scenes")
    (folder / "recipe.toml").write_text(SCENES)
    prepare_run(load_recipe(folder / "recipe.toml"), "local_only", 0, folder / "run").go()
    return folder / "run"


@pytest.mark.parametrize("suffix", ["pt", "onnx"])
def test_a_model_with_an_answer_for_every_pixel(scenes, suffix, tmp_path):
    exported = export(scenes, "some-0", tmp_path / f"model.{suffix}")
    assert exported.difference < 1e-5
    features, segment, edges = read_model(tmp_path / f"model.{suffix}").apply(
        torch.zeros(2, 3, 32, 32)
    )
    assert features.shape == (2, 4 * 8 * 8 + 6 * 4 * 4)
    assert segment.shape[2:] == edges.shape[2:]


def test_models_start_from_an_encoder_that_was_exported(scenes, tmp_path):
    path = tmp_path / "new" / "encoder.safetensors"
    exported = export(scenes, "some-0", path, encoder=True)
    assert exported.what == "encoder"
    with safe_open(path, "pt") as file:
        assert ModelMetadata.of_json(file.metadata()["consort"]) == exported.metadata
    encoder = ConvPyramid((3, 32, 32), widths=(4, 6), channels=8, weights=str(path))
    expected = trained_model(scenes, "some-0").model.encoder.state_dict()
    for name, value in encoder.state_dict().items():
        assert value.equal(expected[name]), name


TWO_MODELS = """
title = "Scenes for two models"
groups = [
  { name = "some", count = 1, tasks = ["depth", "normals"] },
  { name = "other", count = 1, tasks = ["depth"] },
]
data = { name = "synthetic_scenes", examples = 24, size = 32 }
model = { name = "conv_pyramid", widths = [4, 6], channels = 8 }
run = { rounds = 3 }
local = { lr = 0.1, batch = 4 }

[algorithms.own_or_common]
"""


@pytest.fixture(scope="module")
def divided(tmp_path_factory):
    """A run after which one client has two models, each for one of its tasks."""
    folder = tmp_path_factory.mktemp("divided")
    (folder / "recipe.toml").write_text(TWO_MODELS)
    recipe = load_recipe(folder / "recipe.toml")
    for seed in range(9):
        run = prepare_run(recipe, "own_or_common", seed, folder / str(seed))
        run.go()
        if isinstance(trained_model(folder / str(seed), "some-0").model.encoder, Encoders):
            return folder / str(seed)
    raise AssertionError("choose rounds after which the two tasks prefer different models")


@pytest.mark.parametrize("suffix", ["pt", "onnx"])
def test_two_models_that_share_the_tasks_are_one_file(divided, suffix, tmp_path):
    exported = export(divided, "some-0", tmp_path / f"model.{suffix}")
    assert exported.difference < 1e-5
    features, *_ = read_model(tmp_path / f"model.{suffix}").apply(torch.zeros(2, 3, 32, 32))
    assert features.shape == (2, 2 * (4 * 8 * 8 + 6 * 4 * 4))


def test_two_encoders_are_not_written_as_one(divided, tmp_path):
    with pytest.raises(Failure, match="some-0 has two models"):
        export(divided, "some-0", tmp_path / "encoder.safetensors", encoder=True)
    with pytest.raises(UsageError, match="an encoder alone is written to a file"):
        export(divided, "some-0", tmp_path / "encoder.pt", encoder=True)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("where", ["scenes", "divided", "run"])
def test_a_state_dict_has_the_names_of_pytorch(where, tmp_path, request):
    folder = request.getfixturevalue(where)
    client = "client-0" if where == "run" else "some-0"
    exported = export(folder, client, tmp_path / "model.safetensors")
    assert exported.what == "state_dict"
    model = load_model(folder, client)
    state = load_file(tmp_path / "model.safetensors")
    assert state.keys() == model.state_dict().keys()
    inputs = torch.rand(2, *exported.metadata.shape)
    with torch.no_grad():
        expected = model(inputs)
        for parameter in model.parameters():
            parameter.zero_()
        model.load_state_dict(state)
        found = model(inputs)
    for task, output in expected.items():
        assert output.equal(found[task]), task


def test_a_file_that_computes_something_else_is_not_kept(run, tmp_path, monkeypatch):
    def off_by_a_little(path):
        metadata, apply = read_model(path)
        return LoadedModel(metadata, lambda inputs: tuple(one + 2e-4 for one in apply(inputs)))

    monkeypatch.setattr(exporting, "read_model", off_by_a_little)
    with pytest.raises(Failure, match=r"was not written: .* by 0\.0002, more than 0\.0001"):
        export(run, "client-0", tmp_path / "model.pt")
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_exported(run, tmp_path):
    with pytest.raises(UsageError, match=r"ends in \.pt \(TorchScript\), \.onnx"):
        export(run, "client-0", tmp_path / "model.pkl")
    with pytest.raises(UsageError, match="no client 'client-7': did you mean 'client-"):
        export(run, "client-7", tmp_path / "model.pt")
    with pytest.raises(UsageError, match="holds no run"):
        export(tmp_path, "client-0", tmp_path / "model.pt")
    begun = tmp_path / "begun"
    shutil.copytree(run, begun, ignore=shutil.ignore_patterns("*.ckpt"))
    with pytest.raises(Failure, match="no round is finished yet"):
        export(begun, "client-0", tmp_path / "model.pt")


def test_a_file_that_is_no_model(tmp_path):
    for name in ("model.pt", "model.onnx"):
        with pytest.raises(UsageError, match="there is no file"):
            read_model(tmp_path / name)
        (tmp_path / name).write_bytes(b"not a model")
        with pytest.raises(UsageError, match=f"{name} is not a model file or is damaged"):
            read_model(tmp_path / name)


def test_a_model_from_elsewhere_says_nothing_about_itself(tmp_path):
    path = tmp_path / "model.pt"
    with pytest.warns(DeprecationWarning, match="torch.jit"):
        torch.jit.save(torch.jit.trace(torch.nn.Linear(2, 2), torch.ones(1, 2)), str(path))
    with pytest.raises(UsageError, match="its metadata cannot be read"):
        read_model(path)


class Twofold(nn.Module):
    """A network of a user, with the heads of two tasks inside."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(5, 4), nn.ReLU())
        self.exits = nn.ModuleDict({"kind": nn.Linear(4, 3), "size": nn.Linear(4, 1)})

    def forward(self, x):
        z = self.body(x)
        return {name: layer(z) for name, layer in self.exits.items()}


class Plain(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3))


@pytest.mark.parametrize("network", [Twofold, Plain])
def test_a_network_of_ones_own_gets_its_parameters_back(network, tmp_path):
    x, kinds = torch.randn(30, 5), torch.arange(30) % 3
    tasks = {"kind": Classification(3)}
    targets = {"kind": kinds}
    if network is Twofold:
        tasks["size"] = Supervised("mse_loss", outputs=1)
        targets["size"] = x[:, 0]
    splits = Splits(*(Examples(x, targets).take(rows) for rows in torch.arange(30).chunk(3)))
    clients = {name: Member.of(tasks, network, splits) for name in ("a", "b")}
    run = Run(
        Federation(clients), FedAvg(LocalTraining(lr=0.1)), Schedule(1), folder=tmp_path / "r"
    )
    run.go()
    export(run, "a", tmp_path / "model.safetensors")
    again = network()
    again.load_state_dict(load_file(tmp_path / "model.safetensors"))
    with torch.no_grad():
        found, expected = again(x), trained_model(run, "a").model.eval()(x)
    found = found if isinstance(found, dict) else {"kind": found}
    for task, output in expected.items():
        assert (found[task].flatten() - output.flatten()).abs().max() < 1e-6, task
