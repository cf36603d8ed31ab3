"""Reading the image file of a signature as a model's input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from consort.data.page import PAPER, Grey, read_page
from consort.domains.signatures.preprocess import Size, fit, preprocess


@dataclass(frozen=True)
class Scan:
    """The preprocessing of a data set, so that later files are read in the same way; a `Reader`."""

    size: Size
    """Height and width of the result in pixels."""
    canvas: Size | None = None
    """The canvas on which signatures are centred before scaling; None for one per signature."""
    cleaned: bool = True
    """Whether ink is separated from paper and centred; synthetic pages need neither."""

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Scan:
        """Restores a scan.

        Args:
            table: The result of `table`, possibly read from JSON.

        Returns:
            The scan.
        """
        size, canvas = (table[key] and tuple(table[key]) for key in ("size", "canvas"))
        return cls(size, canvas, table["cleaned"])

    def table(self) -> dict[str, Any]:
        """Its fields by name."""
        return asdict(self)

    def read(self, path: Path) -> Grey:
        """Reads a signature from an image file.

        Args:
            path: The file.

        Returns:
            Bright ink on black; all zeros if the page is empty.

        Raises:
            Failure: If the file cannot be read as an image.
        """
        return self.prepared(read_page(path))

    def prepared(self, page: Grey) -> Grey:
        """Prepares a page that is already read.

        Args:
            page: Grey levels of the page.

        Returns:
            Bright ink on black; all zeros if the page is empty.
        """
        if not self.cleaned:
            return fit(PAPER - page, self.size)
        return preprocess(page, self.size, self.canvas)
