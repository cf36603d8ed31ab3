from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from PIL import Image

from consort.data.registry import load_dataset
from consort.domains.scenes.metrics.panoptic import UNKNOWN
from consort.domains.scenes.tasks.dense import IGNORED
from consort.errors import Failure, UsageError

SIZE = {"size": [8, 16]}
SHAPE = (16, 16)  # shown in half its size, from column 4 on
PERSON, DOG, GRASS, SKY = 1, 18, 193, 187
CATEGORIES = [
    {"id": PERSON, "name": "person", "isthing": 1},
    {"id": DOG, "name": "dog", "isthing": 1},
    {"id": SKY, "name": "sky-other-merged", "isthing": 0},
    {"id": GRASS, "name": "grass-merged", "isthing": 0},
]
NUMBERS = {"sky": 5, "grass": 70_000, "first": 256, "second": 65_536, "crowd": 9}


def segment(name, category, crowd=0):
    number = NUMBERS[name]
    return {"id": number, "category_id": category, "iscrowd": crowd, "area": 1, "bbox": [0] * 4}


SEGMENTS = [
    segment("sky", SKY),
    segment("first", DOG),
    segment("second", DOG),
    segment("grass", GRASS),
    segment("crowd", PERSON, 1),
]


def painted():
    """Sky above grass, two dogs, a crowd, and a column that nobody named."""
    numbers = np.full(SHAPE, NUMBERS["sky"])
    numbers[8:] = NUMBERS["grass"]
    numbers[4:8, :4] = NUMBERS["first"]
    numbers[4:8, 4:8] = NUMBERS["second"]
    numbers[4:8, 8:12] = NUMBERS["crowd"]
    numbers[:, 14:] = 0
    return np.stack([numbers % 256, numbers // 256 % 256, numbers // 65536], -1).astype(np.uint8)


def person(image, joints, area=100.0):
    keypoints = [0] * 51
    for joint, values in joints.items():
        keypoints[3 * joint : 3 * joint + 3] = values
    return {"image_id": image, "keypoints": keypoints, "area": area, "iscrowd": 0, "bbox": [0] * 4}


def write(root, part, images, people):
    entries = [
        {"image_id": number, "file_name": f"{number:012d}.png", "segments_info": SEGMENTS}
        for number in images
    ]
    annotations = root / "annotations"
    (annotations / f"panoptic_{part}").mkdir(parents=True)
    (root / part).mkdir()
    table = {"images": [], "categories": CATEGORIES, "annotations": entries}
    (annotations / f"panoptic_{part}.json").write_text(json.dumps(table))
    (annotations / f"person_keypoints_{part}.json").write_text(json.dumps({"annotations": people}))
    for number in images:
        Image.fromarray(painted()).save(annotations / f"panoptic_{part}" / f"{number:012d}.png")
        Image.fromarray(np.zeros((*SHAPE, 3), np.uint8)).save(root / part / f"{number:012d}.jpg")


@pytest.fixture
def folder(tmp_path):
    people = [
        person(7, {0: (3, 5, 2), 16: (15, 0, 1)}, area=64),
        person(7, {2: (0, 0, 2)}),
        person(9, {}),
    ]
    write(tmp_path / "coco", "train2017", [7, 9], people)
    write(tmp_path / "coco", "val2017", [8], [])
    return tmp_path


def test_every_task_is_read(folder):
    dataset = load_dataset("coco", 0, folder, **SIZE)
    assert list(dataset.tasks) == ["segment", "stuff", "panoptic", "instances", "keypoints"]
    assert len(dataset) == 3
    panoptic = dataset.tasks["panoptic"]
    assert (panoptic.classes, panoptic.stuff) == (4, 2), "stuff comes first"
    assert dataset.tasks["stuff"].classes == dataset.tasks["instances"].classes == 3
    rows = {task: target[0] for task, target in dataset.examples.targets.items()}
    sky, grass, person_, dog = range(4)
    above, across, below = 0, 2, 4
    x, away = UNKNOWN, IGNORED
    around = [x] * 4
    dogs = [dog * 1000 + 2] * 2 + [dog * 1000 + 3] * 2
    assert rows["panoptic"][above].tolist() == [*around, *[sky * 1000] * 7, x, *around]
    assert rows["panoptic"][across].tolist() == [*around, *dogs, x, x, 0, x, *around]
    assert rows["panoptic"][below].tolist() == [*around, *[grass * 1000] * 7, x, *around]
    instances = [2002, 2002, 2003, 2003, x, x, 0, x]
    assert rows["instances"][across].tolist() == [*around, *instances, *around]
    assert rows["segment"][across, 4:12].tolist() == [dog] * 4 + [away] * 2 + [sky, away]
    assert rows["stuff"][across, 4:12].tolist() == [2] * 4 + [away] * 2 + [sky, away]
    assert person_ not in rows["segment"]


def test_joints_move_with_their_image(folder):
    figures = load_dataset("coco", 0, folder, **SIZE).examples.targets["keypoints"]
    assert figures.shape == (3, 2, 17, 4)
    first, second = figures[0]
    assert first[0].tolist() == [4 + 1.75, 2.75, 2, 16]
    assert first[16].tolist() == [4 + 7.75, 0.25, 1, 16]
    assert not first[1:16].any()
    assert second[2].tolist() == [4.25, 0.25, 2, 25]
    assert not figures[1:].any(), "nobody whose joints are known"


def test_one_part_and_no_people(folder):
    (folder / "coco" / "annotations" / "person_keypoints_val2017.json").unlink()
    dataset = load_dataset("coco", 0, folder, split="val", **SIZE)
    assert len(dataset) == 1
    assert "keypoints" not in dataset.tasks


def test_losses_are_finite_and_a_perfect_answer_is_perfect(folder):
    dataset = load_dataset("coco", 0, folder, **SIZE)
    for name, task in dataset.tasks.items():
        target = dataset.examples.targets[name]
        assert task.loss(torch.zeros(3, task.outputs, 8, 16), target).isfinite(), name
    task, target = dataset.tasks["segment"], dataset.examples.targets["segment"]
    meter = task.meter()
    right = torch.nn.functional.one_hot(target.long().clamp(max=3), 4).movedim(-1, 1).float()
    meter.update(right, target)
    assert meter.compute()["pixel_accuracy"] == 1


def change(folder, part, edit):
    path = folder / "coco" / "annotations" / f"panoptic_{part}.json"
    table = json.loads(path.read_text())
    edit(table)
    path.write_text(json.dumps(table))


def test_damaged_tables_are_named(folder):
    change(folder, "val2017", lambda table: table["annotations"][0].pop("segments_info"))
    with pytest.raises(Failure, match=r"panoptic_val2017.json.*annotations.0.segments_info"):
        load_dataset("coco", 0, folder, **SIZE)
    change(folder, "train2017", lambda table: table["annotations"].clear())
    with pytest.raises(Failure, match=r"panoptic_train2017.json is damaged: it has no image"):
        load_dataset("coco", 0, folder, **SIZE)
    (folder / "coco" / "annotations" / "panoptic_train2017.json").write_text("{")
    with pytest.raises(Failure, match=r"panoptic_train2017.json is damaged"):
        load_dataset("coco", 0, folder, **SIZE)


def test_segments_and_categories_must_be_known(folder):
    change(folder, "val2017", lambda table: table["annotations"][0]["segments_info"].pop())
    with pytest.raises(Failure, match=r"000000000008.png: its segment 9 is not in the annotations"):
        load_dataset("coco", 0, folder, **SIZE)
    change(folder, "val2017", lambda table: table["categories"].pop())
    with pytest.raises(Failure, match=r"panoptic_val2017.json has no category 193"):
        load_dataset("coco", 0, folder, split="val", **SIZE)


def test_missing_files_are_named(folder, tmp_path):
    (folder / "coco" / "val2017" / "000000000008.jpg").unlink()
    with pytest.raises(Failure, match=r"000000000008.jpg is missing"):
        load_dataset("coco", 0, folder, **SIZE)
    (folder / "coco" / "annotations" / "panoptic_val2017.json").unlink()
    with pytest.raises(UsageError, match=r"panoptic_val2017.json is missing"):
        load_dataset("coco", 0, folder, **SIZE)
    with pytest.raises(UsageError, match=r"coco/annotations/panoptic.*synthetic_scenes"):
        load_dataset("coco", 0, tmp_path / "empty")
