"""COCO's annotation files of segments and of people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar

import numpy as np
from pydantic import Field, TypeAdapter, ValidationError

from consort.domains.scenes.frame import Values
from consort.domains.scenes.metrics.panoptic import NUMBERS, UNKNOWN
from consort.domains.scenes.tasks.dense import IGNORED
from consort.errors import Failure, UsageError

JOINTS = 17
"""The number of key points of a person."""
Table = TypeVar("Table")


@dataclass(frozen=True)
class _Category:
    id: int
    isthing: int


@dataclass(frozen=True)
class _Segment:
    id: int
    category_id: int
    iscrowd: int


@dataclass(frozen=True)
class _PanopticImage:
    image_id: int
    file_name: str
    segments_info: list[_Segment]


@dataclass(frozen=True)
class _Segments:
    categories: list[_Category]
    annotations: list[_PanopticImage]


@dataclass(frozen=True)
class _Person:
    image_id: int
    keypoints: Annotated[list[float], Field(min_length=3 * JOINTS, max_length=3 * JOINTS)]
    area: float


@dataclass(frozen=True)
class _People:
    annotations: list[_Person]


@dataclass(frozen=True)
class Photo:
    """An image, the file of its segments with their codes, and the people in it."""

    image: Path
    """The image file."""
    segments: Path
    """The image file that encodes the segments."""
    codes: Mapping[int, int]
    """For each segment number in the file its code: class * 1000 + number of the thing."""
    people: Values
    """People x joints x (x, y, visibility, area of the person)."""


class Part:
    """One part of COCO, such as val2017; classes are numbered with stuff before things.

    Args:
        root: The folder of COCO.
        part: The name of the part.

    Raises:
        UsageError: If the annotations are missing.
        Failure: If they are damaged.
    """

    def __init__(self, root: Path, part: str) -> None:
        self.root, self.part = root, part
        self.path = root / "annotations" / f"panoptic_{part}.json"
        self.table = _read(self.path, _Segments)
        kinds = sorted(self.table.categories, key=lambda kind: (kind.isthing, kind.id))
        self.kinds = {kind.id: number for number, kind in enumerate(kinds)}
        self.stuff = sum(not kind.isthing for kind in kinds)
        if not self.stuff < len(kinds) <= IGNORED or not self.table.annotations:
            raise Failure(
                f"{self.path} is damaged: it has no images, no things or too many classes"
            )

    def photos(self) -> Iterator[Photo]:
        """All images that have segments."""
        places = (self.root / self.part, self.root / "images" / self.part)
        images = next((place for place in places if place.is_dir()), places[0])
        people = self._people()
        for entry in self.table.annotations:
            name = Path(entry.file_name)
            yield Photo(
                images / f"{name.stem}.jpg",
                self.path.with_suffix("") / name,
                {
                    segment.id: self._code(number, segment)
                    for number, segment in enumerate(entry.segments_info, 1)
                },
                np.array(people.get(entry.image_id, ())).reshape(-1, JOINTS, 4),
            )

    def _code(self, number: int, segment: _Segment) -> int:
        """Crowds, whose members are not annotated separately, are ignored."""
        kind = self.kinds.get(segment.category_id)
        if kind is None:
            raise Failure(f"{self.path} has no category {segment.category_id}")
        return UNKNOWN if segment.iscrowd else kind * NUMBERS + number * (kind >= self.stuff)

    def _people(self) -> dict[int, list[Values]]:
        """For every image the people with annotated joints; empty if there is no such file."""
        path = self.path.with_name(f"person_keypoints_{self.part}.json")
        found: dict[int, list[Values]] = {}
        for person in _read(path, _People).annotations if path.is_file() else ():
            joints = np.reshape(person.keypoints, (JOINTS, 3))
            if joints[:, 2].any():
                area = np.full((JOINTS, 1), person.area)
                found.setdefault(person.image_id, []).append(np.hstack([joints, area]))
        return found


def _read(path: Path, kind: type[Table]) -> Table:
    if not path.is_file():
        raise UsageError(f"{path} is missing: unpack COCO's annotations there")
    try:
        return TypeAdapter(kind).validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise Failure(f"{path} is damaged: {where} {first['msg']}") from error
