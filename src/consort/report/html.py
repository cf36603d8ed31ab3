"""Builds HTML; all text is escaped unless it was built here."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")


class Html(str):
    """HTML text that needs no escaping."""

    __slots__ = ()


Content: TypeAlias = "Html | str | int | None"
Figure: TypeAlias = Mapping[str, Any]

_ALONE = frozenset({"img", "meta", "wbr"})


def tag(name: str, /, *children: Content, **attributes: str | int) -> Html:
    """An HTML element.

    Args:
        name: The name of the element.
        children: Its contents.
        attributes: Its attributes; names that Python reserves end in `_`.
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(str(value))}"'
        for key, value in attributes.items()
    )
    closing = "" if name in _ALONE else f"</{name}>"
    return Html(f"<{name}{given}>{join(children)}{closing}")


def join(children: Iterable[Content]) -> Html:
    """Concatenates contents; `None` is skipped."""
    return Html("".join(_safe(child) for child in children if child is not None))


def _safe(content: Content) -> str:
    return content if isinstance(content, Html) else html.escape(str(content))


@dataclass(frozen=True)
class Cell:
    """The content of a table cell, and the number to sort it by."""

    text: Content
    value: float = math.nan
    best: bool = False


Columns: TypeAlias = Mapping[str, Callable[[T], Cell | str]]


def table(rows: Iterable[T], columns: Columns[T], note: str = "") -> Html:
    """A table that can be sorted by clicking on the head of a column.

    Args:
        rows: The rows.
        columns: By column title, a function that gives the cell of a row.
        note: A text below the table.
    """
    heads = (tag("th", tag("button", name, type="button"), scope="col") for name in columns)
    body = (tag("tr", *(_cell(show(row)) for show in columns.values())) for row in rows)
    inner = join([tag("thead", tag("tr", *heads)), tag("tbody", *body)])
    return join(
        [
            tag("div", tag("table", inner), class_="table"),
            tag("p", note, class_="note") if note else None,
        ]
    )


def _cell(cell: Cell | str) -> Html:
    if isinstance(cell, str):
        return tag("td", cell)
    kind = "number best" if cell.best else "number"
    known = {} if math.isnan(cell.value) else {"data_value": repr(cell.value)}
    return tag("td", cell.text, class_=kind, **known)


def plot(title: str, figure: Figure, note: str = "", wide: bool = False) -> Html:
    """A plot, which the script of the page draws when it comes into view.

    Args:
        title: The title.
        figure: The plot, as Plotly reads it.
        note: A text below the plot.
        wide: Whether it takes the whole width of the page.
    """
    script = tag("script", _json(figure), type="application/json")
    height = f"height:{figure['layout']['height']}px"
    return tag(
        "figure",
        tag("h3", title),
        tag("div", script, class_="plot", style=height, role="img", aria_label=title),
        tag("figcaption", note) if note else None,
        **({"class_": "wide"} if wide else {}),
    )


def _json(figure: Figure) -> Html:
    # A `<` could end the script element early, so it is written as a JSON escape.
    text = json.dumps(_finite(figure), separators=(",", ":"), allow_nan=False)
    return Html(text.replace("<", "\\u003c"))


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        # Six digits are more than a screen can show, and keep the page small.
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def label(text: object) -> str:
    """Escapes text for a plot, since Plotly interprets tags."""
    return html.escape(str(text), quote=False)


def grid(*items: Content) -> Html:
    """Items side by side if there is room."""
    return tag("div", *items, class_="grid")


def section(anchor: str, title: str, *content: Content) -> Html:
    """A section of the page."""
    return tag("section", tag("h2", title), *content, id=anchor)


def details(title: str, *content: Content, unfolded: bool = False) -> Html:
    """A part that can be unfolded."""
    state = {"open": ""} if unfolded else {}
    return tag("details", tag("summary", title), *content, **state)


def tiles(facts: Iterable[tuple[str, str, str]]) -> Html:
    """The main numbers as tiles: name, value, and a hint how to read it."""
    return tag(
        "dl",
        *(
            tag("div", tag("dt", name), tag("dd", value), tag("p", hint))
            for name, value, hint in facts
        ),
        class_="tiles",
    )


def properties(facts: Mapping[str, object]) -> Html:
    """A list of names and values."""
    return tag(
        "dl",
        *(join([tag("dt", name), tag("dd", str(value))]) for name, value in facts.items()),
        class_="properties",
    )
