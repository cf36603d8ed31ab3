from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.io import savemat

from consort.data.registry import load_dataset
from consort.domains.scenes.tasks.dense import IGNORED
from consort.errors import Failure, UsageError

SHAPE = (12, 16)
SIZE = {"size": [12, 16]}
NAMES = ("0001", "1449")


def save(path, values):
    path.parent.mkdir(parents=True, exist_ok=True)
    match path.suffix:
        case ".npy":
            np.save(path, values)
        case ".mat":
            savemat(path, {path.parent.name: values})
        case _:
            Image.fromarray(values).save(path, quality=100)


def write(root, suffixes):
    """The same two rooms, each of the published variants in its own files."""
    segments = np.repeat([[0, 1, 40, 7]], 12, axis=0).repeat(4, axis=1).astype(np.uint8)
    vectors = np.zeros((*SHAPE, 3), dtype=np.float32)
    vectors[:, :8] = (0, 0, 1)
    vectors[:, 8:] = (-1, 0, 0)
    depths = np.full(SHAPE, 2.5, dtype=np.float32)
    depths[0] = 0
    lines = np.zeros(SHAPE, dtype=np.float32)
    lines[6] = 1
    as_bytes = np.round((vectors + 1) * 127.5).astype(np.uint8)
    stored = {
        "images": np.zeros((*SHAPE, 3), np.uint8),
        "segmentation": segments,
        "normals": vectors if suffixes["normals"] == ".npy" else as_bytes,
        "depth": depths,
        "edge": lines if suffixes["edge"] == ".npy" else (lines * 255).astype(np.uint8),
    }
    for name in NAMES:
        for kind, values in stored.items():
            save(root / kind / f"{name}{suffixes[kind]}", values)
    (root / "gt_sets").mkdir()
    for name, split in zip(NAMES, ("train", "val"), strict=True):
        (root / "gt_sets" / f"{split}.txt").write_text(name)


ASTMT = {"images": ".jpg", "segmentation": ".mat", "normals": ".jpg", "depth": ".mat"}
MTI = {"images": ".jpg", "segmentation": ".png", "normals": ".npy", "depth": ".npy"}
INVPT = {"images": ".png", "segmentation": ".png", "normals": ".png", "depth": ".npy"}
VARIANTS = {
    "astmt": ("NYUD_MT", ASTMT | {"edge": ".png"}),
    "mti-net": ("NYUD_MT", MTI | {"edge": ".npy"}),
    "fedhca2": ("NYUDv2", INVPT | {"edge": ".png"}),
}


@pytest.mark.parametrize(("place", "suffixes"), VARIANTS.values(), ids=VARIANTS)
def test_every_published_variant_means_the_same(tmp_path, place, suffixes):
    write(tmp_path / place, suffixes)
    dataset = load_dataset("nyud", 0, tmp_path, **SIZE)
    assert list(dataset.tasks) == ["segment", "normals", "depth", "edges"]
    assert dataset.tasks["segment"].classes == 40
    targets = {task: target[1] for task, target in dataset.examples.targets.items()}
    expected = [IGNORED] * 4 + [0] * 4 + [39] * 4 + [6] * 4
    assert targets["segment"].tolist() == [expected] * 12
    normals = targets["normals"].float()
    front, left = torch.tensor([0.0, 0.0, 1.0]), torch.tensor([-1.0, 0.0, 0.0])
    near = {"atol": 0.05 if suffixes["normals"] == ".jpg" else 0.01, "rtol": 0.0}
    torch.testing.assert_close(normals[:, 3, 2], front, **near)
    torch.testing.assert_close(normals[:, 3, 13], left, **near)
    assert bool((targets["depth"][1:] == 2.5).all())
    assert not targets["depth"][0].any()
    assert targets["edges"].sum(1).tolist() == [0] * 6 + [16] + [0] * 5


def test_labels_that_are_missing_are_ignored(tmp_path):
    write(tmp_path / "NYUDv2", INVPT | {"edge": ".png"})
    for place in ("segmentation/1449.png", "normals/1449.png", "depth/1449.npy", "edge/1449.png"):
        (tmp_path / "NYUDv2" / place).unlink()
    targets = load_dataset("nyud", 0, tmp_path, **SIZE).examples.targets
    for task in ("segment", "normals", "edges"):
        assert bool((targets[task][1] == IGNORED).all())
    assert not targets["depth"][1].any()


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("depth/0001.npy", "an array"),
        ("normals/0001.png", "an image"),
        ("segmentation/0001.png", "an image"),
    ],
)
def test_damaged_files_are_named(tmp_path, place, reason):
    write(tmp_path / "NYUDv2", INVPT | {"edge": ".png"})
    (tmp_path / "NYUDv2" / place).write_bytes(b"nothing")
    with pytest.raises(Failure, match=rf"{place.rpartition('/')[2]} is damaged: {reason}"):
        load_dataset("nyud", 0, tmp_path, **SIZE)


def test_wrong_answers_are_named(tmp_path):
    write(tmp_path / "NYUDv2", INVPT | {"edge": ".png"})
    save(tmp_path / "NYUDv2" / "segmentation" / "0001.png", np.full(SHAPE, 41, np.uint8))
    with pytest.raises(Failure, match=r"0001.png is damaged: a label from 0 to 39"):
        load_dataset("nyud", 0, tmp_path, **SIZE)
    save(tmp_path / "NYUDv2" / "segmentation" / "0001.png", np.ones((*SHAPE, 3), np.uint8))
    with pytest.raises(Failure, match=r"0001.png is damaged: .*12x16x3"):
        load_dataset("nyud", 0, tmp_path, **SIZE)


def test_a_missing_folder_is_explained(tmp_path):
    with pytest.raises(UsageError, match=r"NYUD_MT/images.*or NYUDv2.*synthetic_scenes"):
        load_dataset("nyud", 0, tmp_path)
