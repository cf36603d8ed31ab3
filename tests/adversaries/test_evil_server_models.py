"""Networks, losses, metrics, transforms and data of one's own are no way into a client."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from consort.deployment.policy import Policy
from consort.deployment.study import Study
from consort.domains.scenes.tasks.segmentation import Segmentation
from consort.errors import Refused
from consort.experiment.loading import load_recipe
from consort.experiment.recipe import Recipe
from consort.models.registry import ModelSpec, build
from tests.adversaries.evil_server import (
    CLIENT,
    SECRET,
    Answer,
    EvilServer,
    House,
    honest_recipe,
    victim,
)
from tests.adversaries.test_evil_server_study import PLACES, assert_refused
from tests.institutions import STUDY, holdings


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path / "house").furnish()


@pytest.fixture
def mail(tmp_path: Path) -> Path:
    return tmp_path / "mail"


def code_in_recipes(place: str) -> dict[str, dict[str, Any]]:
    return {
        "loss": {"tasks": {"classify": {"loss": place}}},
        "metrics": {"tasks": {"classify": {"metrics": [place]}}},
        "named metrics": {"tasks": {"classify": {"metrics": {"x": place}}}},
        "transform": {"local": {"transform": place}},
        "own transform": {"algorithms": {"fedavg": {"local": {"transform": place}}}},
        "optimizer": {"local": {"optimizer": place}},
        "own optimizer": {"algorithms": {"fedavg": {"local": {"optimizer": place}}}},
        "hf": {"model": {"name": f"hf:{place}"}},
        "timm": {"model": {"name": f"timm:{place}"}},
        "head": {"model": {"name": place, "head": "fc"}},
        "companion": {"algorithms": {"fedavg": {"kind": "fml", "companion": {"name": place}}}},
    }


@pytest.mark.parametrize("where", code_in_recipes(""))
@pytest.mark.parametrize("place", PLACES)
def test_code_is_not_run_wherever_a_recipe_names_it(where, place, house: House, mail: Path):
    server = EvilServer(victim(house), honest_recipe(mail))
    before = house.files()
    changes = code_in_recipes(house.places[place])[where]
    assert_refused(server.describe(study=server.proposing(changes)), house, before)


@pytest.mark.parametrize("loss", ["importlib", "__builtins__", "_VF", "warnings", "softmax"])
def test_a_name_of_torch_is_a_loss_or_nothing(loss, house: House, mail: Path):
    server = EvilServer(victim(house), honest_recipe(mail))
    changes = {"tasks": {"classify": {"loss": loss}}}
    assert_refused(server.describe(study=server.proposing(changes)), house, house.files())


def files(house: House) -> dict[str, Path]:
    return {
        "secret": house.weights,
        "folder": house.folder,
        "code": house.code,
        "missing": house.folder / "nothing",
    }


def test_files_and_folders_cannot_be_named_and_nobody_learns_which_exist(house: House, mail: Path):
    """By any key that takes a file, on a client whose owner allows all that Consort brings."""
    every = ["tensors", "image_folder", "synthetic_vectors", "synthetic_signatures"]
    policy = Policy(approve="listed", data=every)
    errors: dict[int, set[str]] = {}
    for path in files(house).values():
        for number, changes in enumerate(
            (
                {"model": {"name": f"hf:{path}"}},
                {"model": {"name": f"hf:{path}", "config": {"trust_remote_code": True}}},
                {"model": {"name": "timm:resnet18", "weights": str(path)}},
                {
                    "verification": {},
                    "unseen": {"x": {"data": {"name": "tensors", "path": str(path)}}},
                },
                {
                    "verification": {},
                    "unseen": {"x": {"data": {"name": "image_folder", "path": str(path)}}},
                },
            )
        ):
            server = EvilServer(victim(house, policy=policy), honest_recipe(mail))
            before = house.files()
            answer = server.describe(study=server.proposing(changes))
            assert_refused(answer, house, before)
            errors.setdefault(number, set()).add(answer.error)
    assert all(len(said) == 1 for said in errors.values())


NET = """
from pathlib import Path
from torch import nn

def net(path: str = "", width: int = 4):
    if path:
        (Path(__file__).parent / "mark").write_text(Path(path).read_text())
    return nn.Sequential(nn.Linear(6, width), nn.ReLU(), nn.Linear(width, 4))

def flip(inputs):
    return -inputs
"""


def own(house: House) -> str:
    """The place of a network that the client's owner uses."""
    file = house.folder / "net.py"
    file.write_text(NET)
    return f"{file}:net"


def test_the_owners_code_is_not_called_for_a_server(house: House, mail: Path):
    """A server that has guessed the place of the owner's network cannot have it called."""
    place = own(house)
    brings = {"data": holdings(CLIENT), "model": {"name": place, "width": 3}}
    for options in (
        {}, {"width": 10**6}, {"path": str(house.code)}, {"width": {"x": "/etc"}},
    ):  # fmt: skip
        server = EvilServer(victim(house, brings=brings), honest_recipe(mail))
        fml = {"kind": "fml", "companion": {"name": place} | options}
        study = server.proposing({"algorithms": {"fedavg": fml}})
        assert_refused(server.describe(study=study), house, house.files())
        study = server.proposing({"algorithms": {"fedavg": {"kind": "fml", "companion": {}}}})
        server.describe(study=study)
        answer = server.initial(study=study, companion=fml["companion"])
        assert_refused(answer, house, house.files())


def test_the_owners_files_are_not_read_for_a_server_that_has_guessed_them(house: House, mail: Path):
    """Weights that the owner trains from are not sent as those of a companion."""
    weights = str(house.folder / "own.st")
    pyramid = {"name": "conv_pyramid", "widths": [8]}
    spec = ModelSpec.of(pyramid)
    own = build(spec, {"s": Segmentation(3)}, torch.zeros(3, 32, 32), 7).encoder
    save_file(own.state_dict(), weights)
    data = {"name": "synthetic_scenes", "examples": 30, "size": 32}
    brings = {"data": data, "model": pyramid | {"weights": weights}}
    server = EvilServer(victim(house, brings=brings), honest_recipe(mail))
    fml = {"kind": "fml", "companion": pyramid | {"weights": weights}}
    study = server.proposing({"algorithms": {"fedavg": fml}})
    assert_refused(server.describe(study=study), house, house.files())


def test_what_the_owner_chose_himself_is_used_and_not_told(house: House, mail: Path):
    place = own(house)
    brings = {
        "data": holdings(CLIENT),
        "model": {"name": place, "width": 5, "head": "2"},
        "local": {"transform": f"{house.folder / 'net.py'}:flip"},
    }
    server = EvilServer(victim(house, brings=brings), honest_recipe(mail))
    answer = server.describe()
    assert answer.payload["model"] == {"name": "net", "width": 5}
    assert answer.payload["local"] == {"transform": "flip"}
    assert str(house.folder).encode() not in answer.content
    assert server.call().payload["model"].shapes["heads.classify.weight"] == (4, 5)


def test_data_of_the_owner_are_used_and_not_told(house: House, mail: Path):
    file = house.folder / SECRET / "points.safetensors"
    save_file({"points": torch.randn(60, 6), "label": torch.arange(60) % 3}, file)
    brings = {"data": {"name": "tensors", "path": str(file)}}
    server = EvilServer(victim(house, brings=brings), honest_recipe(mail))
    answer = server.describe()
    assert answer.payload["train"] == 42
    assert SECRET.encode() not in answer.content


def test_a_saved_model_of_the_owner_is_used_and_not_told(house: House, mail: Path):
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(
        image_size=8, patch_size=4, num_channels=1, hidden_size=8, num_hidden_layers=1,
        num_attention_heads=2, intermediate_size=16,
    )  # fmt: skip
    folder = house.folder / SECRET / "vit"
    transformers.ViTModel(config).save_pretrained(folder)
    images = house.folder / SECRET / "images.safetensors"
    save_file({"x": torch.rand(60, 1, 8, 8), "label": torch.arange(60) % 3}, images)
    brings = {
        "data": {"name": "tensors", "path": str(images)},
        "model": {"name": f"hf:{folder}", "config": {"hidden_act": "gelu"}},
    }
    server = EvilServer(victim(house, brings=brings), honest_recipe(mail))
    answer = server.describe()
    assert answer.payload["model"] == {"name": "vit"}
    assert SECRET.encode() not in answer.content
    assert server.call().payload["model"]


def agreed(folder: Path, more: str = "") -> Recipe:
    """A recipe with a network in two files, as the owner of a client has approved of it."""
    folder.mkdir(parents=True)
    (folder / "net.py").write_text("import size\n" + NET + more)
    (folder / "size.py").write_text("WIDTH = 4\n")
    text = STUDY.replace('"mlp"\nhidden = [8]', '"net.py:net"')
    (folder / "study.toml").write_text(text + "[algorithms.fedavg]\n")
    return load_recipe(folder / "study.toml")


def proposed(answering: Recipe, proposal: Recipe, house: House) -> Answer:
    client = victim(house, answering, {"data": holdings(CLIENT)})
    return EvilServer(client, proposal).describe()


def test_approved_code_is_approved_with_all_its_files(tmp_path: Path, house: House):
    """The same recipe elsewhere is the same study, until any file of it is another one."""
    mine, same = agreed(tmp_path / "mine"), agreed(tmp_path / "same")
    assert proposed(mine, same, house).payload
    (tmp_path / "same" / "size.py").write_text("WIDTH = 5\n")
    assert_refused(proposed(mine, same, house), house, house.files())
    other = agreed(tmp_path / "other", "# another one\n")
    assert_refused(proposed(mine, other, house), house, house.files())
    assert_refused(proposed(mine, honest_recipe(tmp_path / "mail"), house), house, house.files())


def test_a_saved_model_is_approved_with_its_weights(tmp_path: Path):
    for name in ("one", "two"):
        (tmp_path / name / "vit").mkdir(parents=True)
        (tmp_path / name / "vit" / "model.safetensors").write_bytes(b"weights")
        text = STUDY.replace('"mlp"\nhidden = [8]', f'"hf:{tmp_path / name / "vit"}"')
        (tmp_path / name / "study.toml").write_text(text + "[algorithms.fedavg]\n")
    one, two = (load_recipe(tmp_path / name / "study.toml") for name in ("one", "two"))
    assert Study.of(one, "fedavg", 0).digest == Study.of(two, "fedavg", 0).digest
    (tmp_path / "two" / "vit" / "model.safetensors").write_bytes(b"others")
    assert Study.of(one, "fedavg", 0).digest != Study.of(two, "fedavg", 0).digest
    with pytest.raises(Refused, match="differs from the server's"):
        Study.of(two, "fedavg", 0).accepted(one)
