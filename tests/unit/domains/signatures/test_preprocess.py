import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image, ImageDraw
from skimage.filters import gaussian, threshold_otsu

from consort.data.page import otsu
from consort.domains.signatures.preprocess import fit, ink_box, pasted, preprocess

pages = arrays(np.uint8, st.tuples(st.integers(1, 12), st.integers(1, 12)))


def page_with(*boxes, shape=(120, 200), paper=240, ink=60):
    """A grey page with dark boxes, each as (top, left, bottom, right)."""
    page = np.full(shape, paper, dtype=np.uint8)
    for top, left, bottom, right in boxes:
        page[top:bottom, left:right] = ink
    return page


def scanned(shape=(700, 1000)):
    """A large page with a scrawl and the grain of a scanner."""
    picture = Image.new("L", shape[::-1], 225)
    line = [(200, 400), (350, 250), (380, 520), (520, 300), (640, 480), (820, 330)]
    ImageDraw.Draw(picture).line(line, fill=70, width=6, joint="curve")
    grain = np.random.default_rng(0).normal(0, 6, shape)
    return np.clip(np.asarray(picture) + grain, 0, 255).astype(np.uint8)


def variance_between(page, threshold):
    dark, light = page[page <= threshold].astype(float), page[page > threshold].astype(float)
    return len(dark) * len(light) * (dark.mean() - light.mean()) ** 2


# Otsu's threshold


@given(pages)
@settings(deadline=None, max_examples=60)
def test_no_threshold_separates_better(page):
    found = otsu(page)
    levels = np.unique(page)
    if len(levels) == 1:
        assert found is None
    else:
        best = max(variance_between(page, level) for level in levels[:-1])
        assert variance_between(page, found) == pytest.approx(best, rel=1e-9)


def test_the_threshold_cuts_like_scikit_image():
    page = scanned()
    assert np.array_equal(page <= otsu(page), page <= threshold_otsu(page))


def test_a_page_of_two_levels_is_cut_halfway():
    assert otsu(np.array([[0, 0, 255]], dtype=np.uint8)) == 127
    assert otsu(np.array([[10, 20]], dtype=np.uint8)) == 14


# The box and the middle of the ink


def test_the_box_of_a_scan_is_that_of_the_blurred_page():
    page = scanned()
    rows, columns = np.nonzero(gaussian(page, 2, preserve_range=True) <= otsu(page))
    found_rows, found_columns, middle = ink_box(page, otsu(page))
    assert (found_rows.start, found_rows.stop) == (rows.min(), rows.max() + 1)
    assert (found_columns.start, found_columns.stop) == (columns.min(), columns.max() + 1)
    assert middle == (int(rows.mean() - rows.min()), int(columns.mean() - columns.min()))


def test_a_speck_is_not_ink():
    page = scanned()
    speckled = page.copy()
    speckled[20, 20] = 0
    assert ink_box(page, otsu(page)) == ink_box(speckled, otsu(page))


def test_a_single_speck_is_all_the_ink_there_is():
    page = page_with((30, 50, 31, 51), shape=(700, 700))
    assert ink_box(page, otsu(page)) == (slice(30, 31), slice(50, 51), (0, 0))


def test_hair_lines_on_a_small_page_are_ink():
    page = page_with((30, 20, 31, 180), (10, 60, 110, 61))
    rows, columns, _ = ink_box(page, otsu(page))
    assert (rows.start, rows.stop) == pytest.approx((10, 110), abs=1)
    assert (columns.start, columns.stop) == pytest.approx((20, 180), abs=1)


# The canvas


def test_the_middle_comes_to_the_middle():
    ink = np.array([[1, 2, 3]], dtype=np.uint8)
    assert pasted(ink, (0, 2), (3, 7)).tolist() == [[0] * 7, [0, 1, 2, 3, 0, 0, 0], [0] * 7]


def test_what_would_not_fit_is_moved_and_what_is_larger_is_cut():
    ink = np.array([[1, 2, 3, 4]], dtype=np.uint8)
    assert pasted(ink, (0, 3), (1, 5)).tolist() == [[1, 2, 3, 4, 0]]
    assert pasted(ink, (0, 0), (1, 5)).tolist() == [[0, 1, 2, 3, 4]]
    assert pasted(ink, (0, 0), (1, 2)).tolist() == [[2, 3]]


@given(
    length=st.integers(1, 30), room=st.integers(1, 30), at=st.integers(0, 29), tall=st.booleans()
)
@settings(deadline=None, max_examples=60)
def test_all_ink_that_fits_is_on_the_canvas(length, room, at, tall):
    ink = np.arange(1, length + 1, dtype=np.uint8).reshape((-1, 1) if tall else (1, -1))
    middle = (min(at, length - 1), 0) if tall else (0, min(at, length - 1))
    result = pasted(ink, middle, (room, 1) if tall else (1, room))
    assert (result > 0).sum() == min(length, room)


# Scaling


def test_scaling_covers_the_size_without_stretching():
    picture = Image.new("L", (300, 200))
    ImageDraw.Draw(picture).ellipse((100, 50, 200, 150), fill=255)
    scaled = fit(np.asarray(picture), (50, 50))
    assert scaled.shape == (50, 50)
    rows, columns = np.nonzero(scaled > 127)
    assert np.ptp(rows) == pytest.approx(25, abs=1)
    assert np.ptp(columns) == pytest.approx(25, abs=1)
    assert (rows.mean(), columns.mean()) == pytest.approx((24.5, 24.5), abs=0.6)


def test_scaling_to_the_same_size_changes_nothing():
    image = np.random.default_rng(0).integers(0, 256, (20, 30), dtype=np.uint8)
    assert np.array_equal(fit(image, (20, 30)), image)


# All of it


def test_paper_is_black_ink_is_inverted_and_its_mass_is_in_the_middle():
    page = page_with((10, 20, 30, 80))
    result = preprocess(page, (120, 200), (120, 200))
    rows, columns = np.nonzero(result)
    assert set(np.unique(result)) == {0, 255 - 60}
    assert (rows.min(), rows.max() + 1) == (51, 71)
    assert (columns.min(), columns.max() + 1) == (71, 131)


@pytest.mark.parametrize("paper", [200, 240])
def test_the_paper_leaves_no_trace(paper):
    grey, white = (page_with((10, 20, 30, 80), paper=level) for level in (paper, 255))
    results = [preprocess(page, (60, 90), (120, 180)) for page in (grey, white)]
    assert np.array_equal(*results)


def test_without_a_canvas_all_ink_is_seen_as_large_as_it_can_be():
    page = page_with((20, 40, 40, 44), (36, 40, 40, 190))
    result = preprocess(page, (64, 96))
    rows, columns = np.nonzero(result)
    assert min(columns.min(), 95 - columns.max(), rows.min(), 63 - rows.max()) <= 1
    scale = 96 / (2 * 150)
    ink = (page == 60).sum() * (255 - 60)
    assert result.sum() > 0.5 * ink * scale**2


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (40, 30)])
def test_a_blank_page_gives_zeros(shape):
    page = np.full(shape, 77, dtype=np.uint8)
    for canvas in (None, (50, 60)):
        assert not preprocess(page, (8, 9), canvas).any()


@given(page=pages, canvas=st.none() | st.tuples(st.integers(1, 20), st.integers(1, 20)))
@settings(deadline=None, max_examples=60)
def test_any_page_gives_an_image_of_the_size(page, canvas):
    result = preprocess(page, (7, 10), canvas)
    assert result.shape == (7, 10)
    assert result.dtype == np.uint8
