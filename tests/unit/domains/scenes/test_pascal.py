from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.io import savemat

from consort.data.registry import load_dataset
from consort.domains.scenes.tasks.dense import IGNORED
from consort.errors import Failure, UsageError

HEIGHT, WIDTH = 12, 16
NAMES = ("2008_000002", "2008_000003", "2009_000001")
SIZE = {"size": [16, 16]}
TOP = 2  # where a picture begins in its frame
WALL, SKY = 440, 360  # of which NYUD has the wall


def structures(*rows):
    """What MATLAB calls a structure array."""
    found = np.empty((1, len(rows)), dtype=[(key, object) for key in rows[0]])
    for number, row in enumerate(rows):
        for key, value in row.items():
            found[0, number][key] = value
    return found


def mask(rows):
    found = np.zeros((HEIGHT, WIDTH), dtype=np.uint8)
    found[rows] = 1
    return found


def thing(number, *parts):
    marked = [{"part_name": name, "mask": mask(rows)} for name, rows in parts]
    known = structures(*marked) if marked else np.empty((0, 0))
    return {"class": "any", "class_ind": number, "mask": mask(slice(None)), "parts": known}


def save(folder, place, values):
    path = folder / "PASCAL_MT" / place
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".mat":
        savemat(path, values)
    else:
        Image.fromarray(values).save(path)


def people(folder, name, *things):
    anno = {"imname": name, "objects": structures(*things)}
    save(folder, f"human_parts/{name}.mat", {"anno": anno})


@pytest.fixture
def folder(tmp_path):
    """Two images with all labels, and one with none."""
    for name in NAMES:
        save(tmp_path, f"JPEGImages/{name}.jpg", np.full((HEIGHT, WIDTH, 3), 90, np.uint8))
    for name in NAMES[:2]:
        save(tmp_path, f"sal_distill/{name}.png", mask(slice(3, 5)) * 255)
        normals = np.full((HEIGHT, WIDTH, 3), (128, 128, 255), np.uint8)
        save(tmp_path, f"normals_distill/{name}.png", normals)
        areas = np.full((HEIGHT, WIDTH), WALL, np.uint16)
        areas[:, 8:] = SKY
        save(tmp_path, f"pascal-context/trainval/{name}.mat", {"LabelMap": areas})
    save(tmp_path, f"semseg/VOC12/{NAMES[0]}.png", mask(slice(4)) * 15)
    save(tmp_path, f"semseg/pascal-context/{NAMES[0]}.png", mask(slice(4)) * 3)
    save(tmp_path, f"semseg/pascal-context/{NAMES[1]}.png", mask(slice(4)) * IGNORED)
    people(
        tmp_path,
        NAMES[0],
        thing(15, ("lear", slice(0, 2)), ("torso", slice(2, 6))),
        thing(15, ("rfoot", slice(11, 12))),
        thing(8, ("leg", slice(6, 8))),
    )
    people(tmp_path, NAMES[1], thing(15), thing(2))
    lists = tmp_path / "PASCAL_MT" / "ImageSets" / "Context"
    lists.mkdir(parents=True)
    (lists / "train.txt").write_text("\n".join(NAMES[:2]) + "\n")
    (lists / "val.txt").write_text(NAMES[2])
    return tmp_path


def test_every_task_is_read(folder):
    dataset = load_dataset("pascal_context", 0, folder, **SIZE)
    assert list(dataset.tasks) == ["segment", "parts", "saliency", "normals", "edges"]
    assert dataset.tasks["segment"].classes == 21
    assert dataset.tasks["parts"].classes == 7
    assert dataset.examples.inputs.shape == (3, 3, 16, 16)
    within = slice(TOP, TOP + HEIGHT)
    found = {task: target[0] for task, target in dataset.examples.targets.items()}
    expected = torch.from_numpy(mask(slice(4))) * 15
    assert torch.equal(found["segment"][within], expected), "that of VOC12 comes first"
    parts = found["parts"][within]
    assert parts[:, 0].tolist() == [1] * 2 + [2] * 4 + [0] * 5 + [6]
    assert torch.equal(found["saliency"][within], torch.from_numpy(mask(slice(3, 5))))
    wall = found["normals"][:, within, :8].float()
    torch.testing.assert_close(wall[2], torch.ones_like(wall[2]), atol=1e-3, rtol=0)
    assert bool((found["normals"][:, within, 8:] == IGNORED).all()), "NYUD knows no sky"
    edges = found["edges"][within]
    assert edges[1:-1].sum(1).tolist() == [1] * (HEIGHT - 2)
    assert not edges[:, :7].any()
    assert not edges[:, 9:].any()


def test_what_nobody_marked_is_ignored(folder):
    targets = load_dataset("pascal_context", 0, folder, **SIZE).examples.targets
    assert bool((targets["segment"][1, TOP : TOP + 4] == IGNORED).all())
    assert bool((targets["parts"][1] == IGNORED).all()), "nobody has parts"
    for target in targets.values():
        assert bool((target[2] == IGNORED).all()), "an image without any label"
        assert bool((target[..., :TOP, :] == IGNORED).all()), "all around an image"


def test_a_task_without_any_label_is_left_out(folder):
    for name in NAMES[:2]:
        (folder / "PASCAL_MT" / "sal_distill" / f"{name}.png").unlink()
    assert "saliency" not in load_dataset("pascal_context", 0, folder, **SIZE).tasks


def test_images_are_standardised_and_margins_are_nothing(folder):
    dataset = load_dataset("pascal_context", 0, folder, **SIZE)
    seen = dataset.prepare(dataset.examples.inputs)
    assert seen[:, :, :TOP].abs().max() < 0.01
    grey = (90 / 255 - 0.456) / 0.224
    torch.testing.assert_close(seen[0, 1, TOP + 5, 5].item(), grey, atol=0.03, rtol=0)


def test_the_augmented_lists_of_voc_can_be_taken(folder):
    lists = folder / "PASCAL_MT" / "ImageSets" / "Segmentation"
    lists.mkdir()
    (lists / "trainaug.txt").write_text(NAMES[2])
    (lists / "val.txt").write_text(NAMES[0])
    save(folder, f"SegmentationClassAug/{NAMES[2]}.png", mask(slice(1)) * 20)
    dataset = load_dataset("pascal_context", 0, folder, split="voc_aug", **SIZE)
    assert len(dataset) == 2
    assert dataset.examples.targets["segment"][0, TOP, 0] == 20


@pytest.mark.parametrize(
    ("place", "content", "reason"),
    [
        (f"semseg/VOC12/{NAMES[0]}.png", b"no picture", "damaged: an image"),
        (f"sal_distill/{NAMES[1]}.png", b"", "damaged: an image"),
        (f"pascal-context/trainval/{NAMES[1]}.mat", b"MATLAB 5.0", "damaged: a MATLAB file"),
        (f"human_parts/{NAMES[1]}.mat", b"", "damaged: a MATLAB file"),
        (f"JPEGImages/{NAMES[2]}.jpg", b"\xff\xd8", "damaged: an image"),
    ],
)
def test_damaged_files_are_named(folder, place, content, reason):
    (folder / "PASCAL_MT" / place).write_bytes(content)
    with pytest.raises(Failure, match=rf"{place.rpartition('/')[2]}.*{reason}"):
        load_dataset("pascal_context", 0, folder, **SIZE)


def test_wrong_answers_are_named(folder):
    save(folder, f"semseg/VOC12/{NAMES[0]}.png", mask(slice(4)) * 21)
    with pytest.raises(Failure, match=rf"{NAMES[0]}.png is damaged: a label from 0 to 20"):
        load_dataset("pascal_context", 0, folder, **SIZE)
    save(folder, f"semseg/VOC12/{NAMES[0]}.png", mask(slice(4)))
    save(folder, f"pascal-context/trainval/{NAMES[0]}.mat", {"LabelMap": np.zeros((2, 2, 3))})
    with pytest.raises(Failure, match=rf"{NAMES[0]}.mat is damaged.*2x2x3"):
        load_dataset("pascal_context", 0, folder, **SIZE)


def test_an_unknown_part_is_named(folder):
    people(folder, NAMES[0], thing(15, ("wing", slice(0, 2))))
    with pytest.raises(Failure, match=rf"{NAMES[0]}.mat is damaged: people.*wing"):
        load_dataset("pascal_context", 0, folder, **SIZE)


def test_files_of_matlab_73_are_explained(folder):
    header = b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM" + b"\x89HDF"
    (folder / "PASCAL_MT" / "human_parts" / f"{NAMES[0]}.mat").write_bytes(header)
    with pytest.raises(Failure, match=r"MATLAB 7\.3.*save it with -v7"):
        load_dataset("pascal_context", 0, folder, **SIZE)


def test_missing_files_are_named(folder, tmp_path):
    (folder / "PASCAL_MT" / "JPEGImages" / f"{NAMES[1]}.jpg").unlink()
    with pytest.raises(Failure, match=rf"{NAMES[1]}.jpg is missing"):
        load_dataset("pascal_context", 0, folder, **SIZE)
    (folder / "PASCAL_MT" / "ImageSets" / "Context" / "val.txt").unlink()
    with pytest.raises(UsageError, match=r"val.txt is missing"):
        load_dataset("pascal_context", 0, folder, **SIZE)
    with pytest.raises(UsageError, match=r"PASCAL_MT/JPEGImages.*synthetic_scenes"):
        load_dataset("pascal_context", 0, tmp_path / "empty")
