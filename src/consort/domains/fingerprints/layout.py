"""How fingerprint data sets are laid out on disk."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from consort.data.folder import natural, not_found
from consort.data.page import SUFFIXES

_SUFFIX = rf"\.({'|'.join(SUFFIXES)})"


@dataclass(frozen=True)
class Impression:
    """One image of a finger: its file, the finger, and the sensor that took it."""

    path: Path
    finger: str
    sensor: str


@dataclass(frozen=True)
class Layout:
    """Where the image files of a data set are and how they are named."""

    place: str
    """The folder below the data folder."""
    pattern: str
    """A regular expression for paths below `place`, without suffix.

    Its group `finger` is the finger; its optional group `sensor` is the sensor.
    """
    shown: str
    """The pattern as it is shown in error messages."""

    def impressions(self, folder: Path) -> list[Impression]:
        """All images below the data folder.

        Args:
            folder: The data folder.

        Returns:
            The images, sorted by sensor, finger and name.
        """
        place = folder / self.place
        found = []
        for file in place.rglob("*"):
            below = file.relative_to(place).as_posix()
            match = re.fullmatch(self.pattern + _SUFFIX, below, re.IGNORECASE)
            if match:
                groups = match.groupdict()
                found.append(Impression(file, groups["finger"], groups.get("sensor", "")))
        return sorted(found, key=_order)


def _order(one: Impression) -> tuple[object, ...]:
    return natural(one.sensor), natural(one.finger), natural(one.path.as_posix())


def find(name: str, folder: Path | None, layouts: Sequence[Layout]) -> list[Impression]:
    """The images of the first layout that is found on disk.

    Args:
        name: The data set, for the error message.
        folder: The data folder.
        layouts: The accepted layouts, in order of preference.

    Returns:
        All images in this layout.

    Raises:
        UsageError: If no layout is found.
    """
    for layout in layouts if folder else ():
        if folder and (impressions := layout.impressions(folder)):
            return impressions
    shown = tuple(f"{layout.place}/{layout.shown}" for layout in layouts)
    raise not_found(name, folder, shown, twin="synthetic_fingerprints")
