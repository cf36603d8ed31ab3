"""How a collection of signatures lies on disk."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from consort.data.folder import natural, not_found
from consort.data.page import SUFFIXES

_SUFFIX = rf"\.({'|'.join(SUFFIXES)})"


@dataclass(frozen=True)
class Signature:
    """A picture, the user whose signature it shows, and whether that user wrote it."""

    path: Path
    user: str
    genuine: bool


@dataclass(frozen=True)
class Layout:
    """Where the pictures are and how they are called.

    The patterns are regular expressions of a path below `place`, without its suffix; their group
    `user` is the user. `shown` is what people are told.
    """

    place: str
    genuine: str
    forged: str
    shown: str

    def signatures(self, folder: Path) -> list[Signature]:
        """All signatures below the data folder, by user, genuine ones first, then by number."""
        place = folder / self.place
        found = [
            Signature(file, match["user"], genuine)
            for file in place.rglob("*")
            for genuine, pattern in ((True, self.genuine), (False, self.forged))
            if (match := re.fullmatch(pattern + _SUFFIX, _below(place, file), re.IGNORECASE))
        ]
        return sorted(found, key=lambda s: (natural(s.user), not s.genuine, natural(s.path.name)))


def find(
    name: str, folder: Path | None, layouts: tuple[Layout, ...]
) -> tuple[list[Signature], Layout]:
    """The signatures in the first layout of which there are some, and that layout."""
    for layout in layouts if folder else ():
        if folder and (signatures := layout.signatures(folder)):
            return signatures, layout
    shown = tuple(f"{layout.place}/{layout.shown}" for layout in layouts)
    raise not_found(name, folder, shown, twin="synthetic_signatures")


def _below(place: Path, file: Path) -> str:
    return file.relative_to(place).as_posix()
