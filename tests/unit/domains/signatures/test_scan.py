"""Every picture of a data set is read in the same way, then and later."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from consort.data.page import read_page
from consort.domains.signatures.preprocess import preprocess
from consort.domains.signatures.scan import Scan


def page(path, shape):
    grey = np.full(shape, 240, np.uint8)
    grey[8:12, 10:30] = 20
    Image.fromarray(grey).save(path)
    return path


def test_a_scanned_page_is_preprocessed(tmp_path):
    path = page(tmp_path / "page.png", (30, 50))
    expected = preprocess(read_page(path), (40, 60), (40, 60))
    assert (Scan((40, 60), (40, 60)).read(path) == expected).all()
    assert expected.max() == 235


def test_a_drawn_page_is_only_inverted_and_brought_to_size(tmp_path):
    path = page(tmp_path / "page.png", (30, 50))
    scan = Scan((30, 50), cleaned=False)
    assert (scan.read(path) == 255 - read_page(path)).all()
    assert Scan((15, 25), cleaned=False).read(path).shape == (15, 25)


@pytest.mark.parametrize("cleaned", [True, False])
@pytest.mark.parametrize("shape", [(1, 1), (40, 60)])
def test_an_empty_page_is_black(tmp_path, shape, cleaned):
    Image.fromarray(np.full(shape, 255, np.uint8)).save(tmp_path / "page.png")
    assert not Scan((16, 24), cleaned=cleaned).read(tmp_path / "page.png").any()


@pytest.mark.parametrize("scan", [Scan((3, 4)), Scan((3, 4), (5, 6)), Scan((3, 4), cleaned=False)])
def test_a_scan_can_be_written_down(scan):
    assert Scan.of(scan.table()) == scan
    table = scan.table() | {"size": list(scan.size), "canvas": scan.canvas and list(scan.canvas)}
    assert Scan.of(table) == scan
