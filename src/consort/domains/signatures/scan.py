"""How the picture of a signature in a file becomes what models see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from consort.data.page import PAPER, Grey, read_page
from consort.domains.signatures.preprocess import Size, fit, preprocess


@dataclass(frozen=True)
class Scan:
    """The same steps for every picture of a data set, then and later."""

    size: Size
    """Of the result, in pixels."""
    canvas: Size | None = None
    """What a signature is centred on before it is scaled; without one, each has its own."""
    cleaned: bool = True
    """Whether ink must be told from paper and centred; drawn pages are white and need neither."""

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Scan:
        """From what `asdict` made of one, perhaps by way of JSON."""
        size, canvas = (table[key] and tuple(table[key]) for key in ("size", "canvas"))
        return cls(size, canvas, table["cleaned"])

    def read(self, path: Path) -> Grey:
        """Bright ink on black; nothing but black, if the page is empty."""
        page = read_page(path)
        if not self.cleaned:
            return fit(PAPER - page, self.size)
        return preprocess(page, self.size, self.canvas)
