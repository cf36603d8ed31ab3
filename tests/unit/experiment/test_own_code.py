"""Networks and data in several files beside a recipe: here, in workers, on Ray and in export."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.helpers import assert_same
from tests.unit.experiment.test_assembly import numbers

from consort.engines.choice import EngineChoice, EngineName, Origin
from consort.engines.host import ClientHost
from consort.engines.remote import write_plan
from consort.engines.states import StateStore
from consort.errors import UsageError
from consort.experiment.loading import load_recipe
from consort.experiment.preparation import prepare_run
from consort.use.export import export

RECIPE = """
clients = 3
[data]
name = "vectors.py:vectors"
[model]
name = "enc.py:Net"
hidden = 5
head = "fc"
[run]
rounds = 2
[local]
lr = 0.2
[algorithms.fedavg]
[algorithms.fedper]
"""
ENC = """
from torch import nn
from mynet import body

class Net(nn.Module):
    def __init__(self, hidden: int = 4):
        super().__init__()
        self.body, self.fc = body(hidden), nn.Linear(hidden, 3)

    def forward(self, x):
        return {"logits": self.fc(self.body(x).relu())}
"""
MYNET = "from torch import nn\ndef body(hidden):\n    return nn.Linear(6, hidden)\n"
VECTORS = """
import sizes
from consort.domains.vectors.synthetic import synthetic_vectors

def vectors(seed: int):
    return synthetic_vectors(seed, classes=3, examples=sizes.EXAMPLES, features=6)
"""


@pytest.fixture
def path(tmp_path) -> Path:
    for name, text in {
        "own.toml": RECIPE, "enc.py": ENC, "mynet.py": MYNET, "vectors.py": VECTORS,
        "sizes.py": "EXAMPLES = 120",
    }.items():  # fmt: skip
        (tmp_path / name).write_text(text)
    return tmp_path / "own.toml"


def outcome(path: Path, folder: str, engine: EngineChoice = EngineChoice()) -> dict:
    run = prepare_run(load_recipe(path), "fedavg", 0, path.parent / folder, engine=engine)
    return numbers(run.go())


def test_a_network_beside_the_recipe_has_encoder_and_head(path):
    run = prepare_run(load_recipe(path), "fedper", 0, path.parent / "run")
    shapes = run.federation.shapes("client-0")
    assert shapes["heads.classify.weight"] == (3, 5)
    assert shapes["encoder.network.body.weight"] == (5, 6)
    about = json.loads((path.parent / "run" / "run.json").read_text())
    assert about["clients"]["client-0"]["model"].endswith("enc.py:Net(hidden=5, head=fc)")


def test_workers_give_the_same_numbers(path):
    alone = outcome(path, "alone")
    assert_same(outcome(path, "together", EngineChoice(EngineName.workers, 2)), alone)


FAR_SIDE = """
import json, sys
from consort.engines.remote import FarSide
print(FarSide().prepare(sys.stdin.buffer.read()) or "ready")
"""


def test_a_far_side_such_as_one_of_ray_finds_the_files_from_any_folder(path):
    folder = path.parent / "run"
    run = prepare_run(load_recipe(path), "fedavg", 0, folder)
    about = json.loads((folder / "run.json").read_text())
    keys = ("recipe", "algorithm", "seed", "data", "partition")
    origin = Origin("consort.experiment.preparation:reassemble", {k: about[k] for k in keys})
    host = ClientHost(run.federation, run.algorithm, 0, 2, StateStore())
    done = subprocess.run(
        [sys.executable, "-c", FAR_SIDE], check=True, cwd="/", input=write_plan(host, origin),
        capture_output=True, timeout=120,
    )  # fmt: skip
    assert done.stdout.decode().strip() == "ready"


def test_the_model_can_be_exported(path):
    outcome(path, "run")
    found = export(path.parent / "run", "client-1", path.parent / "model.pt")
    assert found.difference < 1e-6
    assert found.metadata.tasks == ("classify",)


def test_an_unknown_layer_is_refused_before_anything_runs(path):
    recipe = load_recipe(path, changes=["model.head=fcc"])
    with pytest.raises(UsageError) as caught:
        prepare_run(recipe, "fedavg", 0, path.parent / "run")
    place = f"{path.parent / 'enc.py'}:Net"
    assert str(caught.value) == (
        f"client client-0: model '{place}' has no layer 'fcc': did you mean 'fc'? (there are: "
        "body, fc)"
    )
    assert not (path.parent / "run").exists()
