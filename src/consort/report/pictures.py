"""The plots of a page as files: SVG, PDF or PNG, drawn by Kaleido with an installed Chromium."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from consort.errors import Failure, UsageError
from consort.report.html import Figure

PictureFormat: TypeAlias = Literal["svg", "pdf", "png"]
WIDTH = 640
"""Pixels; the height is that of the plot on the page."""

_TEMPLATE = {
    "data": {"heatmap": [{"colorscale": [[0, "#f5f7fa"], [1, "#2f62c4"]]}]},
    "layout": {
        "font": {"family": "sans-serif", "size": 12, "color": "#1c2430"},
        "paper_bgcolor": "white",
        "plot_bgcolor": "white",
        "legend": {"orientation": "h", "traceorder": "normal", "x": 0, "y": 1.02,
                   "yanchor": "bottom"},
        "margin": {"l": 48, "r": 12, "t": 12, "b": 44},
        **{
            axis: {"gridcolor": "#dde3ea", "zerolinecolor": "#dde3ea", "linecolor": "#dde3ea",
                   "automargin": True, "title": {"standoff": 8}}
            for axis in ("xaxis", "yaxis")
        },
    },
}  # fmt: skip
"""The light style of the page, on white."""


class Picture(NamedTuple):
    """A plot of a page."""

    name: str
    """A file name without its ending, made of the section and the title."""
    figure: Figure


def pictures_in(page: str) -> list[Picture]:
    """All plots of a page that `write_page` wrote.

    Args:
        page: The text of the page.
    """
    reader = _PlotReader()
    reader.feed(page)
    return reader.found


def write_pictures(
    pictures: Sequence[Picture], folder: Path, format: PictureFormat = "svg"
) -> list[Path]:
    """Writes plots to files, without network.

    Args:
        pictures: The plots.
        folder: Where the files are written; created if it does not exist.
        format: The format of all files.

    Returns:
        The files, in the order of the plots.

    Raises:
        UsageError: Kaleido is not installed.
        Failure: There is no browser, or a file cannot be written.
    """
    paths = [folder / f"{picture.name}.{format}" for picture in pictures]
    _draw(list(zip((picture.figure for picture in pictures), paths, strict=True)), format)
    return paths


def write_picture(figure: Figure, path: Path) -> Path:
    """Writes one plot; the ending of the file decides the format.

    Args:
        figure: The plot.
        path: The file, `.svg`, `.pdf` or `.png`.

    Raises:
        UsageError: The ending is another, or Kaleido is not installed.
        Failure: There is no browser, or the file cannot be written.
    """
    formats: dict[str, PictureFormat] = {".svg": "svg", ".pdf": "pdf", ".png": "png"}
    if path.suffix not in formats:
        raise UsageError(f"{path}: the file must end with .svg, .pdf or .png")
    _draw([(figure, path)], formats[path.suffix])
    return path


def _draw(jobs: Sequence[tuple[Figure, Path]], format: PictureFormat) -> None:
    try:
        import kaleido
    except ImportError:
        raise UsageError(
            "pictures are drawn by Kaleido: pip install 'fedconsort[pictures]', or use the buttons "
            "of the plots on the page"
        ) from None
    from choreographer.errors import ChromeNotFoundError

    try:
        for path in {path.parent for _, path in jobs}:
            path.mkdir(parents=True, exist_ok=True)
        kaleido.write_fig_from_object_sync(
            [{"fig": _styled(figure), "path": str(path), "opts": _options(figure, format)}
             for figure, path in jobs],
            kopts={"mathjax": False},
        )  # fmt: skip
    except ChromeNotFoundError as error:
        raise Failure("pictures are drawn by Chromium or Chrome: install one of them") from error
    except OSError as error:
        raise Failure(f"{jobs[0][1].parent}: pictures cannot be written: {error}") from error


def _styled(figure: Figure) -> dict[str, Any]:
    layout: Mapping[str, Any] = figure["layout"]
    return {"data": figure["data"], "layout": {**layout, "template": _TEMPLATE, "width": WIDTH}}


def _options(figure: Figure, format: PictureFormat) -> dict[str, Any]:
    size = {"width": WIDTH, "height": figure["layout"]["height"]}
    return {"format": format, **size, "scale": 2 if format == "png" else 1}


class _PlotReader(HTMLParser):
    """Collects the plots of a page, each with the headings above it."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Picture] = []
        self._section = ""
        self._title = ""
        self._reading = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Notes where the reader is."""
        given = dict(attrs)
        if tag == "section":
            self._section = given.get("id") or ""
        elif tag == "h3":
            self._title, self._reading = "", "title"
        elif tag == "script" and given.get("type") == "application/json":
            self._reading = "figure"

    def handle_endtag(self, tag: str) -> None:  # noqa: ARG002
        """Ends a heading or a plot."""
        self._reading = ""

    def handle_data(self, data: str) -> None:
        """Takes a heading or a plot."""
        if self._reading == "title":
            self._title += data
        elif self._reading == "figure":
            self.found.append(Picture(self._name(), json.loads(data)))

    def _name(self) -> str:
        title = re.sub(r"[^a-z0-9]+", "-", f"{self._section} {self._title}".lower()).strip("-")
        taken = {picture.name for picture in self.found}
        numbered = (f"{title}-{number}" for number in range(2, len(taken) + 3))
        return next(name for name in (title, *numbered) if name not in taken)
