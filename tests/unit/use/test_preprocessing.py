"""What a model file says about the inputs of its model."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors import safe_open
from tests.unit.cli.command import consort, write_recipe

from consort.experiment.allocation import seats_of
from consort.experiment.loading import load_recipe, recipe_of
from consort.experiment.preparation import prepare_run
from consort.use.preprocessing import preprocessing_of

RECIPE = {
    "clients": 1, "model": {"name": "mlp"}, "algorithms": {"fedavg": {}}, "run": {"rounds": 1},
}  # fmt: skip
DATA = {
    "synthetic_images": {"per_class": 8},
    "synthetic_signatures": {"users": 2, "genuine": 4, "forged": 4, "size": [16, 24]},
    "synthetic_vectors": {"examples": 40},
    "synthetic_news": {},
}


def seat(data, **more):
    return next(iter(seats_of(recipe_of({**RECIPE, "data": data, **more}, "x"), 0, None).values()))


@pytest.mark.parametrize("name", DATA)
def test_the_numbers_prepare_raw_inputs(name):
    one = seat({"name": name, **DATA[name]})
    found = json.loads(json.dumps(preprocessing_of(one)))
    raw = one.dataset.examples.inputs[:5]
    assert found["dtype"] == str(raw.dtype).removeprefix("torch.")
    multiply, add = (torch.tensor(found[key]).view(-1, *[1] * (raw.ndim - 2)) for key in
                     ("multiply", "add"))  # fmt: skip
    made = raw.double() * multiply + add
    assert (made - one.dataset.prepare(raw)).abs().max() < 1e-6


def test_what_bytes_become():
    found = preprocessing_of(seat({"name": "synthetic_images", "per_class": 8}))
    assert found["function"] == "consort.data.pixels:scale"
    assert found["about"].startswith("Converts bytes 0…255 to floats from -1 to 1")
    assert (found["multiply"], found["add"]) == ([pytest.approx(1 / 127.5)], [-1.0])


def test_channels_of_their_own():
    from consort.data.pixels import standardise
    from consort.use.preprocessing import _affine

    raw = torch.randint(0, 256, (4, 3, 5, 5), dtype=torch.uint8)
    multiply, add = _affine(standardise, raw)
    assert (len(multiply), len(add)) == (3, 3)
    assert add[0] == pytest.approx(-0.485 / 0.229)


@pytest.mark.parametrize("prepare", [
    lambda raw: raw.float() ** 2,
    lambda raw: raw.float().flatten(1),
    lambda raw: raw.float() + torch.arange(raw.shape[-1]),
])  # fmt: skip
def test_what_is_more_than_numbers_has_none(prepare):
    from consort.use.preprocessing import _affine

    assert _affine(prepare, torch.randint(0, 256, (4, 1, 5, 5), dtype=torch.uint8)) is None


def test_the_command_writes_it_beside_the_state_dict(tmp_path):
    prepare_run(load_recipe(write_recipe(tmp_path)), "fedavg", 0, tmp_path / "run").go()
    shown = consort("export", tmp_path / "run", "--client", "client-0",
                    "--out", tmp_path / "model.safetensors")  # fmt: skip
    assert shown.code == 0
    assert "model.safetensors: state_dict of mlp" in shown.out
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        about = json.loads(file.metadata()["consort"])
    assert about["preprocessing"]["dtype"] == "float32"
    assert (about["preprocessing"]["multiply"], about["preprocessing"]["add"]) == ([1.0], [0.0])
