"""How signature data sets are laid out on disk."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from consort.data.folder import natural, not_found
from consort.data.page import SUFFIXES

_SUFFIX = rf"\.({'|'.join(SUFFIXES)})"


@dataclass(frozen=True)
class Signature:
    """An image file, the user whose signature it shows, and whether that user wrote it."""

    path: Path
    user: str
    genuine: bool


@dataclass(frozen=True)
class SignatureLayout:
    """Where the image files of a data set are and how they are named.

    `genuine` and `forged` are regular expressions for paths below `place`, without suffix; their
    group `user` is the user.
    """

    place: str
    """The folder below the data folder."""
    genuine: str
    """The pattern of genuine signatures."""
    forged: str
    """The pattern of forgeries."""
    shown: str
    """The patterns as they are shown in error messages."""

    def signatures(self, folder: Path) -> list[Signature]:
        """All signatures below the data folder.

        Args:
            folder: The data folder.

        Returns:
            The signatures, sorted by user, genuine ones first, then by number.
        """
        place = folder / self.place
        found = [
            Signature(file, match["user"], genuine)
            for file in place.rglob("*")
            for genuine, pattern in ((True, self.genuine), (False, self.forged))
            if (match := re.fullmatch(pattern + _SUFFIX, _below(place, file), re.IGNORECASE))
        ]
        return sorted(found, key=lambda s: (natural(s.user), not s.genuine, natural(s.path.name)))


def find(
    name: str, folder: Path | None, layouts: tuple[SignatureLayout, ...]
) -> tuple[list[Signature], SignatureLayout]:
    """The signatures of the first layout that is found on disk.

    Args:
        name: The data set, for the error message.
        folder: The data folder.
        layouts: The accepted layouts, in order of preference.

    Returns:
        All signatures in this layout, and the layout.

    Raises:
        UsageError: If no layout is found.
    """
    for layout in layouts if folder else ():
        if folder and (signatures := layout.signatures(folder)):
            return signatures, layout
    shown = tuple(f"{layout.place}/{layout.shown}" for layout in layouts)
    raise not_found(name, folder, shown, twin="synthetic_signatures")


def _below(place: Path, file: Path) -> str:
    return file.relative_to(place).as_posix()
