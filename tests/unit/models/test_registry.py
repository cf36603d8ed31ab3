from __future__ import annotations

import subprocess
import sys
from dataclasses import FrozenInstanceError
from datetime import date

import pytest
import torch
from torch.nn import functional as F

from consort.core.params import Params
from consort.core.plugins import descriptions, entries
from consort.domains.scenes.tasks.segmentation import Segmentation
from consort.errors import UsageError
from consort.models.registry import ModelSpec, build, parameter_count
from consort.tasks import Classification

IMAGE = torch.rand(3, 32, 32, generator=torch.Generator().manual_seed(0))
TEXT = torch.arange(1, 21)
THIN = {"scale": 0.05, "features": 8}
SMALL = {
    "cnn4": ({"scale": 0.125}, IMAGE),
    "conv_pyramid": ({"widths": [4, 8], "channels": 8}, IMAGE),
    "htcsignet": ({**THIN, "depth": 1, "stride": 1}, IMAGE.repeat(1, 2, 2)),
    "mlp": ({"hidden": [8]}, IMAGE),
    "octconvnet": (THIN, IMAGE),
    "resnet": ({"depths": [1, 1], "widths": [4, 8]}, IMAGE),
    "resnet_pyramid": ({"depths": [1, 1], "widths": [8, 8], "stem": 8, "channels": 8}, IMAGE),
    "siamese": ({"scale": 0.125}, IMAGE.expand(2, 3, 32, 32)),
    "signet": ({**THIN, "stride": 1}, IMAGE),
    "signet_s": ({**THIN, "stride": 1}, IMAGE),
    "swin_pyramid": ({"embedding": 8, "depths": [1, 1], "heads": [1, 2], "window": 4}, IMAGE),
    "textcnn": ({"vocabulary": 50, "embedding": 8, "filters": 4, "dropout": 0}, TEXT),
    "vitsignet": ({**THIN, "depth": 1}, IMAGE),
    "vitsignet32": ({**THIN, "depth": 1}, IMAGE),
}


ENCODERS = entries("models")
PYRAMIDS = [name for name in ENCODERS if name.endswith("_pyramid")]
VECTORS = [name for name in ENCODERS if name not in PYRAMIDS]


def labels(name: str, classes: int) -> Classification | Segmentation:
    """A task that an encoder can learn: one answer per example, or one per pixel."""
    return Segmentation(classes) if name in PYRAMIDS else Classification(classes)


def small(name: str) -> tuple[ModelSpec, torch.Tensor]:
    options, example = SMALL[name]
    return ModelSpec.of({"name": name, **options}), example


def test_every_encoder_has_a_small_variant_here():
    assert SMALL.keys() == ENCODERS.keys()


# Specs


def test_a_table_becomes_a_value_that_can_be_compared_and_hashed():
    spec = ModelSpec.of({"name": "mlp", "hidden": [64, 32]})
    assert spec == ModelSpec("mlp", (("hidden", (64, 32)),))
    assert {spec: "found"}[ModelSpec.of({"hidden": [64, 32], "name": "mlp"})] == "found"
    with pytest.raises(FrozenInstanceError):
        spec.name = "cnn4"


def test_defaults_are_filled_in_so_equal_models_have_equal_specs():
    assert ModelSpec.of({"name": "mlp"}) == ModelSpec.of({"name": "mlp", "hidden": [64]})
    assert dict(ModelSpec.of({"name": "textcnn", "filters": 7}).options) == {
        "vocabulary": 32_000,
        "embedding": 512,
        "filters": 7,
        "kernels": (3, 4, 5),
        "dropout": 0.8,
    }


def test_the_table_is_left_as_it_was():
    table = {"name": "mlp", "hidden": [3]}
    ModelSpec.of(table)
    assert table == {"name": "mlp", "hidden": [3]}


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            {"hidden": [3]},
            "a model needs a name: one of cnn4, conv_pyramid, htcsignet, mlp, octconvnet, resnet,",
        ),
        ({"name": "cn4"}, "there is no model 'cn4': did you mean 'cnn4'"),
        ({"name": 3}, "there is no model '3'"),
        ({"name": "textcnn", "filter": 3}, "no option 'filter': did you mean 'filters'"),
        ({"name": "mlp", "inputs": 3}, "'mlp' has no option 'inputs': did you mean 'hidden'"),
        ({"name": "mlp", "hidden": [64, -1]}, "hidden = [64, -1]: input should be greater than 0"),
        ({"name": "mlp", "hidden": 64}, "hidden = 64: input should be a valid array"),
        ({"name": "mlp", "hidden": ["64"]}, "hidden = ['64']: input should be a valid integer"),
        ({"name": "textcnn", "filters": True}, "filters = True: input should be a valid integer"),
        ({"name": "textcnn", "dropout": 1.0}, "dropout = 1.0: input should be less than 1"),
        ({"name": "textcnn", "kernels": []}, "kernels = []: tuple should have at least 1 item"),
        ({"name": "cnn4", "scale": float("inf")}, "scale = inf: input should be a valid number"),
        ({"name": "cnn4", "scale": date(2026, 1, 1)}, "input should be a valid number"),
        ({"name": "resnet", "stem": "tiny"}, "stem = 'tiny': input should be 'full' or 'small'"),
    ],
)
def test_a_wrong_table_is_one_sentence_that_names_the_way_out(table, message):
    with pytest.raises(UsageError) as caught:
        ModelSpec.of(table)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


# Models


@pytest.mark.parametrize("name", ENCODERS)
def test_every_model_learns_with_every_parameter(name):
    spec, example = small(name)
    model = build(spec, {"a": labels(name, 3), "b": labels(name, 5)}, example, seed=1)
    params = dict(model.named_parameters())
    # Six different examples: of two, BatchNorm makes plus and minus one, whatever they are.
    batch = torch.stack([example.roll(3 * place, -1) for place in range(6)])
    target = torch.tensor([0, 2, 1, 1, 0, 2])
    pixels = (32, 32) if name in PYRAMIDS else ()
    target = target.view(6, *[1] * len(pixels)).expand(6, *pixels)

    def loss() -> torch.Tensor:
        outputs = model(batch)
        assert {task: output.shape for task, output in outputs.items()} == {
            "a": (6, 3, *pixels),
            "b": (6, 5, *pixels),
        }
        return sum(F.cross_entropy(output, target) for output in outputs.values())

    before = loss()
    grads = torch.autograd.grad(before, list(params.values()))
    assert all(grad.any() for grad in grads)
    with torch.no_grad():
        torch._foreach_add_(list(params.values()), grads, alpha=-1e-3)
    assert loss() < before


@pytest.mark.parametrize("name", VECTORS)
def test_names_begin_with_their_role_and_the_encoder_says_its_width(name):
    spec, example = small(name)
    model = build(spec, {"digits": Classification(3)}, example, seed=1, batchnorm="local")
    names = Params.of(model)
    assert len(names.only("encoder")) + len(names.only("heads.digits")) == len(names)
    assert model.encoder(example[None].repeat(2, *[1] * example.ndim)).shape == (
        2,
        model.encoder.width,
    )
    assert model.batchnorm == "local"


@pytest.mark.parametrize("name", ENCODERS)
def test_initial_weights_are_a_function_of_seed_and_architecture(name):
    spec, example = small(name)
    one = Params.of(build(spec, {"a": labels(name, 3)}, example, seed=7))
    torch.manual_seed(99)
    same = Params.of(build(spec, {"a": labels(name, 3)}, example * 0, seed=7))
    other = Params.of(build(spec, {"a": labels(name, 3)}, example, seed=8))
    assert one.equals(same)
    assert not one.only("heads").equals(other.only("heads"))
    if one.only("encoder"):
        assert not one.only("encoder").equals(other.only("encoder"))


@pytest.mark.parametrize("name", ENCODERS)
def test_clients_with_other_label_spaces_start_from_equal_encoders(name):
    spec, example = small(name)
    letters = build(spec, {"letters": labels(name, 26)}, example, seed=7)
    both = build(spec, {"digits": labels(name, 10), "letters": labels(name, 26)}, example, seed=7)
    assert Params.of(letters.encoder).equals(Params.of(both.encoder))
    assert Params.of(letters.heads["letters"]).equals(Params.of(both.heads["letters"]))


def test_heads_of_equal_shape_differ_by_the_name_of_their_task():
    spec, example = small("mlp")
    model = build(spec, {"a": Classification(3), "b": Classification(3)}, example, seed=7)
    assert not torch.equal(model.heads["a"].weight, model.heads["b"].weight)


@pytest.mark.parametrize("name", ENCODERS)
def test_building_leaves_the_global_generator_untouched(name):
    spec, example = small(name)
    state = torch.get_rng_state()
    build(spec, {"a": labels(name, 3)}, example, seed=7)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_failed_build_leaves_the_global_generator_untouched():
    state = torch.get_rng_state()
    with pytest.raises(UsageError):
        build(ModelSpec("cnn4"), {"a": Classification(3)}, TEXT, seed=7)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("name", "example", "words"),
    [
        ("cnn4", TEXT, "'cnn4' cannot be built for inputs of shape 20 (int64): it needs"),
        ("cnn4", torch.zeros(3, 8, 8), "of shape 3x8x8 (float32): it needs images of at least"),
        ("mlp", TEXT, "'mlp' cannot be built for inputs of shape 20 (int64): it needs floating"),
        ("resnet", torch.zeros(3, 32, 32), "of shape 3x32x32 (float32): it needs images larger"),
        ("resnet", torch.zeros(28, 28), "'resnet' cannot be built for inputs of shape 28x28"),
        (
            "signet",
            IMAGE,
            "of shape 3x32x32 (float32): with stride = 4 it needs images of at least",
        ),
        ("vitsignet", TEXT, "'vitsignet' cannot be built for inputs of shape 20 (int64): it needs"),
        ("textcnn", IMAGE, "'textcnn' cannot be built for inputs of shape 3x32x32 (float32)"),
        ("textcnn", TEXT[:4], "of shape 4 (int64): its option 'kernels' has width 5"),
    ],
)
def test_a_model_that_does_not_fit_its_input_is_one_sentence(name, example, words):
    with pytest.raises(UsageError) as caught:
        build(ModelSpec(name), {"a": Classification(3)}, example, seed=7)
    assert words in str(caught.value)


def test_softmax_regression_is_a_head_alone():
    spec = ModelSpec.of({"name": "mlp", "hidden": []})
    model = build(spec, {"a": Classification(4)}, torch.zeros(1, 3, 5), seed=0)
    assert parameter_count(model) == 4 * 15 + 4
    assert len(Params.of(model).only("encoder")) == 0


# Encoders of one's own

OWN = """
from torch import nn


class Flat(nn.Module):
    def __init__(self, example, features: int = 4, extra: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.linear = nn.Linear(example.numel(), features)
        self.width = features

    def forward(self, inputs):
        return self.linear(inputs.flatten(1))


class Measured(Flat):
    @staticmethod
    def measure(example):
        return example[:1]


def flat(example, *, twice: bool):
    return Flat(example, 8 if twice else 4)


class Listed(Flat):
    def __init__(self, example, sizes: list[int] = ()) -> None:
        super().__init__(example)


def without_width(example):
    return nn.Flatten()


def nothing():
    return None


NUMBER = 3
BUILT = nn.Linear(6, 3)
"""


@pytest.fixture
def _own(tmp_path, monkeypatch):
    (tmp_path / "own_model.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("_own")
@pytest.mark.parametrize(
    ("table", "inputs", "width"),
    [
        ({"name": "own_model.py:Flat"}, 6, 4),
        ({"name": "own_model.py:Flat", "features": 3, "extra": [1]}, 6, 3),
        ({"name": "own_model.py:Measured"}, 3, 4),
        ({"name": "own_model.py:flat", "twice": True}, 6, 8),
    ],
)
def test_an_encoder_of_ones_own_is_a_model(table, inputs, width):
    spec = ModelSpec.of(table)
    assert hash(spec) == hash(ModelSpec.of(table))
    model = build(spec, {"a": Classification(3)}, torch.zeros(2, 3), seed=1)
    assert Params.of(model).shapes["encoder.linear.weight"] == (width, inputs)
    assert Params.of(model).shapes["heads.a.weight"] == (3, width)
    assert Params.of(model).equals(
        Params.of(build(spec, {"a": Classification(3)}, torch.ones(2, 3), seed=1))
    )


@pytest.mark.usefixtures("_own")
@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"name": "own_model.py:Flat", "feature": 3}, "no option 'feature': did you mean 'feat"),
        ({"name": "own_model.py:Flat", "features": "3"}, "features = '3': input should be a valid"),
        ({"name": "own_model.py:flat"}, "model 'own_model.py:flat' needs its option 'twice'"),
        ({"name": "own_model.py:Listed", "sizes": [1]}, "annotate its option 'sizes' as a tuple"),
        ({"name": "own_model.py:NUMBER"}, "own_model.py:NUMBER is not a model: an nn.Module, or a"),
        ({"name": "own_model.py:BUILT"}, "BUILT is an instance, whose weights are drawn when its"),
        ({"name": "own_model.py:flatt"}, "own_model.py defines no 'flatt'"),
        ({"name": "other.py:Flat"}, "there is no file other.py"),
    ],
)
def test_what_is_wrong_with_ones_own_encoder_is_said(table, message):
    with pytest.raises(UsageError) as caught:
        ModelSpec.of(table)
    assert message in str(caught.value)


@pytest.mark.usefixtures("_own")
def test_a_network_that_does_not_say_its_width_is_tried():
    spec = ModelSpec.of({"name": "own_model.py:without_width"})
    model = build(spec, {"a": Classification(3)}, torch.zeros(2, 3), seed=1)
    assert Params.of(model).shapes["heads.a.weight"] == (3, 6)


@pytest.mark.usefixtures("_own")
def test_what_makes_no_network_is_refused_when_it_is_built():
    spec = ModelSpec.of({"name": "own_model.py:nothing"})
    with pytest.raises(UsageError, match=r"nothing returns a NoneType where an nn\.Module"):
        build(spec, {"a": Classification(3)}, torch.zeros(2, 3), seed=1)


# Imports


def run_fresh(code: str) -> list[str]:
    """The lines that code prints in a new interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.splitlines()


def test_descriptions_come_without_importing_torch():
    lines = run_fresh(
        "import sys; from consort.core.plugins import descriptions\n"
        "print(*descriptions('models').values(), sep='\\n')\n"
        "print('torch' in sys.modules)"
    )
    assert lines == [*descriptions("models").values(), "False"]
    assert all(line.endswith(".") for line in lines[:-1])


def test_descriptions_are_the_first_lines_of_the_classes():
    from consort.models.cnn4 import Cnn4
    from consort.models.resnet import ResNet

    assert descriptions("models").keys() == ENCODERS.keys()
    assert descriptions("models")["cnn4"] == Cnn4.__doc__.splitlines()[0]
    assert descriptions("models")["resnet"] == ResNet.__doc__.splitlines()[0]


def test_building_and_stepping_imports_neither_transformers_nor_the_compiler():
    lines = run_fresh(
        "import sys, torch\n"
        "from consort.models.registry import ModelSpec, build\n"
        "from consort.training.optimizers import clip_by_norm, make_optimizer\n"
        "from consort.tasks import Classification\n"
        "before = set(sys.modules)\n"
        "for name in ('resnet', 'vitsignet', 'htcsignet'): ModelSpec.of({'name': name})\n"
        "model = build(ModelSpec.of({'name': 'cnn4', 'scale': 0.1}), {'t': Classification(3)},"
        " torch.rand(1, 28, 28), 0)\n"
        "params = list(model.parameters())\n"
        "for name in ('sgd', 'adam', 'adamw'):\n"
        "    loss = model(torch.rand(2, 1, 28, 28))['t'].sum()\n"
        "    grads = list(torch.autograd.grad(loss, params))\n"
        "    clip_by_norm(grads, 1.0)\n"
        "    with torch.no_grad():\n"
        "        make_optimizer(name).step(params, grads, 0.1)\n"
        "print('torch' in before, 'transformers' in sys.modules, 'torch._dynamo' in sys.modules)\n"
        "print('torch.optim' in set(sys.modules) - before)"
    )
    assert lines == ["True False False", "False"]
