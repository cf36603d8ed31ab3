"""Plots as files: all of a page, under names of their own, drawn without network."""

from __future__ import annotations

import shutil
import sys
from xml.etree import ElementTree

import pytest
from PIL import Image
from tests.unit.report.sample import load_run

from consort.errors import UsageError
from consort.report.critical_difference import critical_difference_diagram
from consort.report.html import plot, section
from consort.report.page import write_report
from consort.report.pictures import WIDTH, pictures_in, write_picture, write_pictures
from consort.results.significance import Friedman

FIGURE = {"data": [{"type": "bar", "x": ["<a>"], "y": [1]}], "layout": {"height": 300}}
RANKING = Friedman(20, 0.001, {"a": 1.2, "b<": 1.9, "c": 3.1, "d": 3.8}, 1.3, 10)


@pytest.fixture
def drawing():
    pytest.importorskip("kaleido")
    if not any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))):
        pytest.skip("no Chromium: apt-get install chromium")


def test_plots_are_named_by_section_and_title():
    page = section("time", "Time", plot("Per round & client", FIGURE), plot("Per round", FIGURE))
    page += section("clients", "Clients", plot("Per round", FIGURE), plot("Per  round!", FIGURE))
    found = pictures_in(page)
    assert [picture.name for picture in found] == [
        "time-per-round-client", "time-per-round", "clients-per-round", "clients-per-round-2",
    ]  # fmt: skip
    assert all(picture.figure == FIGURE for picture in found)


def test_every_plot_of_a_report_is_found(tmp_path):
    runs = [load_run(tmp_path / name, algorithm=name) for name in ("fedavg", "ditto")]
    page = write_report(runs, tmp_path / "report.html").read_text("utf-8")
    found = pictures_in(page)
    assert len(found) == page.count('class="plot"') > 8
    assert len({picture.name for picture in found}) == len(found)


def test_pictures_are_written(tmp_path, drawing):
    pictures = pictures_in(section("time", "Time", plot("One", FIGURE), plot("Two", FIGURE)))
    for path in write_pictures(pictures, tmp_path / "new"):
        picture = ElementTree.parse(path).getroot()
        assert (picture.get("width"), picture.get("height")) == (str(WIDTH), "300")
    assert sorted(p.name for p in (tmp_path / "new").iterdir()) == ["time-one.svg", "time-two.svg"]


def test_png_and_pdf(tmp_path, drawing):
    with Image.open(write_picture(FIGURE, tmp_path / "one.png")) as picture:
        assert picture.size == (2 * WIDTH, 600)
    assert write_picture(FIGURE, tmp_path / "one.pdf").read_bytes().startswith(b"%PDF")


def test_another_ending_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"one\.gif: the file must end with \.svg, \.pdf or \.png"):
        write_picture(FIGURE, tmp_path / "one.gif")


def test_without_kaleido_the_way_out_is_told(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "kaleido", None)
    with pytest.raises(UsageError, match=r"pip install 'fedconsort\[pictures\]'"):
        write_picture(FIGURE, tmp_path / "one.svg")


def test_the_diagram_has_every_rank_and_every_group():
    layout = critical_difference_diagram(RANKING)["layout"]
    texts = [note["text"] for note in layout["annotations"]]
    assert texts[:5] == ["1", "2", "3", "4", "CD = 1.30"]
    assert texts[5:] == ["a (1.20)", "b&lt; (1.90)", "c (3.10)", "d (3.80)"]
    bars = [shape for shape in layout["shapes"] if shape["line"]["width"] == 4]
    assert [(bar["x0"], bar["x1"]) for bar in bars] == [
        pytest.approx((1.16, 1.94)), pytest.approx((1.86, 3.14)), pytest.approx((3.06, 3.84)),
    ]  # fmt: skip
    ruler = next(s for s in layout["shapes"] if s["y0"] == s["y1"] == -38)
    assert ruler["x1"] - ruler["x0"] == pytest.approx(1.3)
