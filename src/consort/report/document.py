"""The HTML document of every page, with its style sheet, its script and Plotly inside."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from consort.errors import Failure
from consort.report.html import Content, Html, join, section, tag


def write_page(path: Path, title: str, subtitle: str, sections: Mapping[str, Content]) -> Path:
    """Writes a page with a menu of its sections.

    Args:
        path: The file to write.
        title: The heading of the page.
        subtitle: The line below it.
        sections: The contents by section title; empty ones are left out.

    Returns:
        The path.

    Raises:
        Failure: If the file cannot be written.
    """
    page = _page(title, subtitle, {name: part for name, part in sections.items() if part})
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise Failure(f"{path}: the page cannot be written: {error.strerror}") from error
    return path


def _page(title: str, subtitle: str, sections: Mapping[str, Content]) -> Html:
    from plotly.offline import get_plotlyjs

    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", f"{title} · Consort"),
        tag("style", _file("page.css")),
    )
    menu = (tag("a", name, href=f"#{_anchor(name)}") for name in sections)
    body = tag(
        "body",
        tag("header", tag("h1", title), tag("p", subtitle)),
        tag("nav", *menu),
        tag("main", *(section(_anchor(name), name, part) for name, part in sections.items())),
        tag("script", Html(get_plotlyjs())),
        tag("script", _file("page.js")),
    )
    return join([Html("<!doctype html>\n"), tag("html", head, body, lang="en")])


def _anchor(name: str) -> str:
    return name.lower().replace(" ", "-")


def _file(name: str) -> Html:
    return Html(files("consort.report").joinpath(name).read_text(encoding="utf-8"))
