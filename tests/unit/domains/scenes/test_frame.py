from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consort.domains.scenes.frame import MARGIN, Frame
from consort.domains.scenes.tasks.dense import IGNORED

SIDES = st.tuples(st.integers(1, 40), st.integers(1, 40))


@given(SIDES, SIDES)
def test_images_fit_keep_their_proportions_and_never_grow(size, shape):
    tall, wide = Frame(size, shape).inner
    assert 1 <= tall <= min(size[0], shape[0])
    assert 1 <= wide <= min(size[1], shape[1])
    assert tall in (size[0], shape[0]) or wide in (size[1], shape[1])
    factor = min(1, size[0] / shape[0], size[1] / shape[1])
    assert abs(tall - factor * shape[0]) <= 0.5 or tall == 1
    assert abs(wide - factor * shape[1]) <= 0.5 or wide == 1


@given(SIDES, SIDES)
def test_a_label_is_that_of_the_pixel_below_its_centre(size, shape):
    frame = Frame(size, shape)
    rows, columns = np.indices(shape)
    found = frame.shrunk(rows * 100 + columns)
    for row in range(frame.inner[0]):
        for column in range(frame.inner[1]):
            down = int((row + 0.5) * shape[0] / frame.inner[0])
            right = int((column + 0.5) * shape[1] / frame.inner[1])
            assert found[row, column] == 100 * down + right


def test_what_fits_is_put_in_the_middle_as_it_is():
    rng = np.random.default_rng(0)
    frame = Frame((8, 10), (5, 10))
    image = rng.integers(0, 256, (5, 10, 3), dtype=np.uint8)
    framed = frame.image(image)
    assert framed.shape == (3, 8, 10)
    assert np.array_equal(framed[:, 1:6], image.transpose(2, 0, 1))
    assert (framed[:, 6] == np.array(MARGIN)[:, None]).all()
    labels = rng.integers(0, 9, (5, 10))
    assert np.array_equal(frame.labels(labels)[1:6], labels)
    assert (frame.labels(labels)[[0, 6, 7]] == IGNORED).all()
    depths = frame.depths(np.full((5, 10), 2.5))
    assert (depths[1:6] == 2.5).all()
    assert not depths[[0, 6, 7]].any(), "a depth of 255 would be far away, not unknown"


def test_normals_are_of_length_one_or_ignored():
    vectors = np.zeros((4, 4, 3))
    vectors[:2] = (0.0, -3.0, 4.0)
    vectors[2] = 0.2
    found = Frame((4, 8), (4, 4)).normals(vectors).astype(float)
    assert found.shape == (3, 4, 8)
    np.testing.assert_allclose(found[:, 0, 2], [0, -0.6, 0.8], atol=1e-3)
    assert (found[:, 2:] == IGNORED).all()
    assert (found[:, :, :2] == IGNORED).all()


def test_no_line_is_lost_and_lines_stay_thin():
    drawn = np.zeros((32, 32), dtype=bool)
    drawn[:, 13] = True
    drawn[5] = True
    found = Frame((8, 8), (32, 32)).lines(drawn)
    assert found[1:-1, 3].all(), "column 13 of 32; thinning may take the ends"
    assert found[1, 1:-1].all()
    assert not np.delete(np.delete(found, 1, axis=0), 3, axis=1).any()
    assert np.array_equal(Frame((32, 32), (32, 32)).lines(drawn), drawn)


def test_borders_are_where_areas_meet():
    areas = np.zeros((6, 8), dtype=np.uint16)
    areas[:, 5:] = 300
    found = Frame((6, 8), (6, 8)).borders(areas)
    assert set(np.nonzero(found)[1]) <= {4, 5}
    assert (found[1:-1].sum(axis=1) == 1).all()
    assert not Frame((6, 8), (6, 8)).borders(np.full((6, 8), 7)).any()


@pytest.mark.parametrize("shape", [(6, 8), (12, 16), (1, 1)])
def test_labels_of_another_size_are_fitted_to_their_image(shape):
    assert Frame((8, 8), (6, 8)).labels(np.ones(shape)).sum() == 6 * 8 + 2 * 8 * IGNORED
