"""Data sets on disk as recipes use them: natural clients, one-class clients, files that vanish."""

import json
import math
import re

import numpy as np
import pytest
from PIL import Image
from tests.unit.cli.command import consort, write_recipe

from consort.domains.images.isic2019 import CENTRES
from consort.domains.images.kvasir import CLASSES
from consort.experiment.allocation import _dataset

ROUNDS = ("rounds = 2", "rounds = 1")


def recipe(folder, clients, name, partition, options=""):
    return write_recipe(
        folder,
        ("clients = 3", f"clients = {clients}"),
        ("synthetic_vectors", name),
        ("classes = 4\nexamples = 90\nfeatures = 6", options),
        ROUNDS,
        more=f"\n[partition]\n{partition}\nmin_examples = 3\n",
    )


def inspected(path, data):
    """What the command says about every client."""
    found = consort("inspect", path, "--data", data, "--out", path.with_suffix(".html"), "--json")
    assert found.code == 0, found.err
    return json.loads(found.out)["clients"]


@pytest.fixture
def writers(tmp_path):
    """LEAF's files: ann writes 1 and 2 in both parts, bob 5 only, carl next to nothing."""
    labels = {
        "train": {"ann": [1] * 6 + [2] * 6, "bob": [5] * 8},
        "test": {"ann": [1], "carl": [3]},
    }
    for part, users in labels.items():
        (tmp_path / "femnist/data" / part).mkdir(parents=True)
        data = {name: {"x": [[0.5] * 784] * len(y), "y": y} for name, y in users.items()}
        path = tmp_path / f"femnist/data/{part}/all.json"
        path.write_text(json.dumps({"users": list(users), "user_data": data}))
    return tmp_path


def test_writers_are_the_natural_clients_of_femnist(writers):
    clients = inspected(recipe(writers, 2, "femnist", 'by = "natural"'), writers)
    assert [client["labels"] for client in clients.values()] == [{"1": 7, "2": 6}, {"5": 8}]


@pytest.fixture
def centres(tmp_path):
    """Centre number n has 3 + n lesions, all of class n."""
    root = tmp_path / "fed_isic2019"
    (root / "ISIC_2019_Training_Input").mkdir(parents=True)
    rows = ["image,target,center,fold,fold2"]
    for centre in range(len(CENTRES)):
        for copy in range(3 + centre):
            name = f"ISIC_{centre}_{copy}"
            picture = np.full((6, 8, 3), 40 * centre, np.uint8)
            Image.fromarray(picture).save(root / f"ISIC_2019_Training_Input/{name}.jpg")
            rows.append(f"{name},{centre},{centre},train,train_{centre}")
    (root / "train_test_split").write_text("\n".join(rows) + "\n")
    return tmp_path


def test_centres_are_the_natural_clients_of_isic2019(centres):
    path = recipe(centres, 6, "isic2019", 'by = "natural"', "size = 8")
    clients = inspected(path, centres)
    assert [client["labels"] for client in clients.values()] == [
        {str(centre): 3 + centre} for centre in range(6)
    ]


def test_clients_with_one_class_have_metrics(centres):
    path = recipe(centres, 6, "isic2019", 'by = "natural"', "size = 8")
    found = consort("run", path, "--data", centres, "--out", centres / "out", "--quiet")
    assert found.code == 0, found.err
    history = (centres / "out/fedavg/seed-0/history.jsonl").read_text()
    rows = [json.loads(line) for line in history.splitlines()]
    tested = {(row["client"], row["metric"]) for row in rows if row.get("split") == "test"}
    metrics = ("accuracy", "balanced_accuracy", "loss")
    assert tested == {(f"client-{number}", metric) for number in range(6) for metric in metrics}
    assert all(math.isfinite(row["value"]) for row in rows)


def test_real_writers_are_natural_clients(real_data, tmp_path):
    clients = inspected(recipe(tmp_path, 12, "femnist", 'by = "natural"'), real_data)
    sizes = [client["train"] + client["validation"] + client["test"] for client in clients.values()]
    assert min(sizes) > 100
    assert all(len(client["labels"]) > 5 for client in clients.values())


@pytest.fixture
def pictures(tmp_path):
    for number, name in enumerate(CLASSES):
        (tmp_path / "kvasir-dataset-v2" / name).mkdir(parents=True)
        for copy in range(4):
            shade = np.full((8, 8, 3), 30 * number + copy, np.uint8)
            Image.fromarray(shade).save(tmp_path / f"kvasir-dataset-v2/{name}/{copy}.jpg")
    return tmp_path


@pytest.fixture
def run(pictures):
    """The folder of a run on pictures, of which something may vanish before it goes on."""
    path = recipe(pictures, 2, "kvasir", 'by = "iid"', "size = 8")
    out = pictures / "out"
    assert consort("run", path, "--data", pictures, "--out", out, "--quiet").code == 0
    _dataset.cache_clear()  # as in a new process
    return out / "fedavg/seed-0"


@pytest.mark.parametrize(
    ("vanished", "message"),
    [
        ("polyps/*.jpg", r"kvasir-dataset-v2/polyps contains no \*\.jpg: unpack"),
        ("polyps/3.jpg", "seed-0 holds a run with another partition"),
    ],
)
def test_a_run_does_not_go_on_without_its_files(run, pictures, vanished, message):
    for file in (pictures / "kvasir-dataset-v2").glob(vanished):
        file.unlink()
    found = consort("resume", run, "--quiet")
    assert found.code == 2
    assert re.search(message, found.error)
