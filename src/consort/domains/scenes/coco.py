"""MS COCO 2017: stuff, things and key points of people (Lin et al. 2014, Kirillov et al. 2019)."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from consort.data.dataset import Dataset
from consort.domains.scenes.coco_tables import JOINTS, Part, Photo
from consort.domains.scenes.dataset import dense_dataset, root_of
from consort.domains.scenes.files import picture
from consort.domains.scenes.frame import Frame, Sides, Values
from consort.domains.scenes.metrics.panoptic import NUMBERS, UNKNOWN
from consort.domains.scenes.tasks.dense import IGNORED
from consort.domains.scenes.tasks.keypoints import KeyPoints
from consort.domains.scenes.tasks.panoptic import Instances, Panoptic
from consort.domains.scenes.tasks.segmentation import Segmentation
from consort.errors import Failure
from consort.tasks import Task

FOLDERS = ("coco", "COCO", "MSCOCO")
SIGMAS = (
    *(0.026, 0.025, 0.025, 0.035, 0.035),
    *(0.079, 0.079, 0.072, 0.072, 0.062, 0.062),
    *(0.107, 0.107, 0.087, 0.087, 0.089, 0.089),
)
"""Of nose, eyes and ears; shoulders, elbows and wrists; hips, knees and ankles."""
MIRRORED = (0, 2, 1, 4, 3, 6, 5, 8, 7, 10, 9, 12, 11, 14, 13, 16, 15)
"""For each joint its counterpart on the other side."""
_SPREAD = 64  # heat maps have sigma = longer side / 64: 8 of 512 pixels


def coco(
    folder: Path | None,
    *,
    size: Sides = (256, 256),
    split: Literal["both", "train", "val"] = "both",
) -> Dataset:
    """MS COCO: segments, stuff, panoptic, instances and key points of 123,287 images.

    Args:
        folder: The data folder.
        size: Height and width of the images in pixels.
        split: The published splits to load.

    Returns:
        The data set with those of its tasks that have annotations.

    Raises:
        UsageError: If the files are not in the folder.
        Failure: If a file is damaged.
    """
    root = root_of("coco", folder, FOLDERS, "annotations/panoptic_{train,val}2017.json")
    parts = [Part(root, f"{name}2017") for name in ("train", "val") if split in ("both", name)]
    kinds, stuff = len(parts[0].kinds), parts[0].stuff
    photos = {photo.image.stem: photo for part in parts for photo in part.photos()}
    most = max(1, *(len(photo.people) for photo in photos.values()))
    sigma = max(size) / _SPREAD
    tasks: dict[str, Task] = {
        "segment": Segmentation(kinds),
        "stuff": Segmentation(stuff + 1),
        "panoptic": Panoptic(kinds, stuff=stuff, sigma=sigma),
        "instances": Instances(1 + kinds - stuff, sigma=sigma),
        "keypoints": KeyPoints(SIGMAS, MIRRORED, sigma=sigma),
    }

    def read(name: str) -> dict[str, Values]:
        return _read(photos[name], size, stuff, most)

    return dense_dataset("coco", list(photos), read, tasks)


def _read(photo: Photo, size: Sides, stuff: int, most: int) -> dict[str, Values]:
    image = picture(photo.image)
    frame = Frame(size, image.shape[:2])
    codes = frame.placed(_codes(photo, frame), around=UNKNOWN)
    kind, known = codes // NUMBERS, codes < UNKNOWN
    things = np.where(kind >= stuff, codes - (stuff - 1) * NUMBERS, 0)
    return {
        "image": frame.image(image),
        "segment": kind.astype(np.uint8),
        "stuff": np.where(known, np.minimum(kind, stuff), IGNORED).astype(np.uint8),
        "panoptic": codes,
        "instances": np.where(known, things, UNKNOWN).astype(np.int32),
        "keypoints": _figures(photo.people, frame, most),
    }


def _codes(photo: Photo, frame: Frame) -> Values:
    """The code of every pixel; the files store a segment's number in three colour channels."""
    colours = frame.shrunk(picture(photo.segments)).astype(np.int64)
    numbers, places = np.unique(colours @ [1, 256, 256**2], return_inverse=True)
    try:
        codes = [photo.codes[number] if number else UNKNOWN for number in numbers.tolist()]
    except KeyError as error:
        raise Failure(f"{photo.segments}: its segment {error} is not in the annotations") from error
    return np.array(codes, dtype=np.int32)[places.reshape(frame.inner)]


def _figures(people: Values, frame: Frame, most: int) -> Values:
    """The people in frame coordinates, in which pixel centres are at .5; unused rows are zero."""
    ratio = np.divide(frame.inner, frame.shape)[::-1]
    places = (people[..., :2] + 0.5) * ratio + frame.corner[::-1]
    rest = people[..., 2:] * [1, ratio.prod()]
    target = np.zeros((most, JOINTS, 4), dtype=np.float32)
    target[: len(people)] = np.where(people[..., 2:3] > 0, np.dstack([places, rest]), 0)
    return target
