"""Reading the image file of a fingerprint as a model's input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from consort.data.page import read_page
from consort.domains.fingerprints.dataset import Images
from consort.domains.fingerprints.scaling import squared, without_frame


@dataclass(frozen=True)
class PrintScan:
    """The scaling of a data set, so that later files are read in the same way; a `Reader`."""

    size: int
    """The side of the square input in pixels."""
    zoom: float = 1.0
    """Above 1, only the part with the most detail is kept, enlarged by this factor."""
    frame: tuple[int, int, int, int] = (0, 0, 0, 0)
    """Rows above and below, columns left and right that are removed."""

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> PrintScan:
        """Restores a scan from the result of `table`, possibly read from JSON."""
        above, below, left, right = table["frame"]
        return cls(table["size"], table["zoom"], (above, below, left, right))

    def table(self) -> dict[str, Any]:
        """Its fields by name."""
        return asdict(self)

    def read(self, path: Path) -> Images:
        """Reads a fingerprint from an image file.

        Args:
            path: The file.

        Returns:
            Grey levels, `size` x `size`.

        Raises:
            Failure: If the file cannot be read as an image.
        """
        return self.prepared(read_page(path))

    def prepared(self, page: Images) -> Images:
        """Scales a scan that is already read.

        Args:
            page: Grey levels, height x width.

        Returns:
            Grey levels, `size` x `size`.
        """
        return squared(without_frame(page, *self.frame), self.size, self.zoom)
