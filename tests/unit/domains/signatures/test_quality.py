"""Good scans pass, and each defect is named."""

from __future__ import annotations

import numpy as np
import pytest

from consort.data.page import PAPER
from consort.domains.signatures.quality import complaint
from consort.domains.signatures.synthetic.signatures import synthetic_signatures

SIZE = (64, 96)
PAGES = [
    PAPER - image[0].numpy()
    for image in synthetic_signatures(1, users=12, genuine=3, forged=3, size=SIZE).examples.inputs
]


def framed(page, grey=PAPER):
    return np.pad(page, 40, constant_values=grey)


def test_signatures_pass():
    assert [complaint(page, SIZE) for page in PAGES] == [None] * len(PAGES)
    assert [complaint(framed(page), SIZE) for page in PAGES] == [None] * len(PAGES)


def pattern(page):
    waves = 28 * (1 + np.sin(np.arange(page.shape[1]) / 3))
    return np.where(page < 220, 0, PAPER - waves).astype(np.uint8)


DEFECTS = {
    "the page is empty": lambda _: np.full((90, 120), 240, np.uint8),
    "empty or the ink too pale": lambda page: (PAPER - (PAPER - page) // 12).astype(np.uint8),
    "does not show dark ink on plain, light paper": lambda page: PAPER - framed(page),
    "has patterned or shaded paper": lambda page: pattern(framed(page)),
    "scan it at a higher resolution": lambda page: framed(page[::6, ::6]),
    "too little ink": lambda _: np.where(np.eye(120) * (np.arange(120) % 4 == 0), 0, PAPER),
    "cuts the signature off": lambda page: np.where(
        np.arange(96) < 8, (np.arange(64)[:, None] % 3 > 0) * PAPER, page
    ),
    "shows two signatures": lambda page: np.concatenate(
        [framed(page), np.full((60, 176), PAPER), framed(page)]
    ),
}


@pytest.mark.parametrize("found", DEFECTS)
def test_each_defect_is_named(found):
    for page in PAGES[:3]:
        assert found in complaint(DEFECTS[found](page).astype(np.uint8), SIZE)


def test_two_signatures_side_by_side():
    page = np.concatenate([PAGES[0], np.full((64, 170), PAPER, np.uint8), PAGES[0]], axis=1)
    assert "shows two signatures" in complaint(page, SIZE)
