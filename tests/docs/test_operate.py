"""The page about operation names every event, every figure and every file there is."""

from __future__ import annotations

import json
import typing

from tests.docs.pages import ROOT, page, quoted, tables

from consort.deployment.logs import FIELDS, Event
from consort.deployment.metrics import FAMILIES


def watching() -> list[list[list[str]]]:
    return tables(page("operate.md").section("Watch it"))


def test_every_event_is_described():
    events, _ = watching()
    assert [quoted(cells[0])[0] for cells in events] == list(typing.get_args(Event))
    described = {name for cells in events for name in quoted(cells[2])}
    assert described == set(FIELDS)


def test_every_figure_is_described():
    _, figures = watching()
    assert [name for cells in figures for name in quoted(cells[0])] == list(FAMILIES)
    for cells in figures:
        (family, *_) = (FAMILIES[name] for name in quoted(cells[0]))
        assert not family.label or family.label in quoted(cells[1])


def test_the_events_that_are_shown_are_events():
    (block,) = (b for b in page("operate.md").blocks if b.language == "json")
    for line in block.text.splitlines():
        shown = json.loads(line)
        assert shown.pop("event") in typing.get_args(Event)
        assert shown.pop("level") in ("info", "warning", "error")
        assert shown.pop("time").endswith("+00:00")
        assert set(shown) <= set(FIELDS)


def test_every_file_of_the_folder_is_named():
    for path in (ROOT / "deploy").iterdir():
        assert path.name in page("operate.md").text, path.name
