"""How a collection of fingerprints lies on disk."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from consort.data.folder import natural, not_found
from consort.data.page import SUFFIXES

_SUFFIX = rf"\.({'|'.join(SUFFIXES)})"


@dataclass(frozen=True)
class Scan:
    """A picture, the finger it shows, and the sensor that took it."""

    path: Path
    finger: str
    sensor: str


@dataclass(frozen=True)
class Layout:
    """Where the pictures are and how they are called.

    The pattern is a regular expression of a path below `place`, without its suffix; its group
    `finger` is the finger, and `sensor`, if there is one, the sensor. `shown` is what people are
    told.
    """

    place: str
    pattern: str
    shown: str

    def scans(self, folder: Path) -> list[Scan]:
        """All pictures below the data folder, by sensor, by finger, then by name."""
        place = folder / self.place
        found = []
        for file in place.rglob("*"):
            below = file.relative_to(place).as_posix()
            match = re.fullmatch(self.pattern + _SUFFIX, below, re.IGNORECASE)
            if match:
                groups = match.groupdict()
                found.append(Scan(file, groups["finger"], groups.get("sensor", "")))
        return sorted(found, key=_order)


def _order(scan: Scan) -> tuple[object, ...]:
    return natural(scan.sensor), natural(scan.finger), natural(scan.path.as_posix())


def find(name: str, folder: Path | None, layouts: Sequence[Layout]) -> list[Scan]:
    """The scans in the first layout of which there are some."""
    for layout in layouts if folder else ():
        if folder and (scans := layout.scans(folder)):
            return scans
    shown = tuple(f"{layout.place}/{layout.shown}" for layout in layouts)
    raise not_found(name, folder, shown, twin="synthetic_fingerprints")
