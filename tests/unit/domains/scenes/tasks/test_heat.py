from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from consort.domains.scenes.tasks.heat import gaussians, gaussians_around, marked, peaks

HEIGHT, WIDTH = 9, 13

places = st.lists(
    st.tuples(st.integers(0, HEIGHT - 1), st.integers(0, WIDTH - 1)), min_size=1, max_size=4
)


def map_of(points, sigma=1.5):
    there = torch.ones(len(points), dtype=torch.bool)
    return gaussians_around(marked(torch.tensor(points), there, (HEIGHT, WIDTH)), sigma)


@given(places, st.floats(0.6, 3.0))
def test_every_pixel_has_the_height_of_the_highest_bell(points, sigma):
    rows, columns = torch.meshgrid(torch.arange(HEIGHT), torch.arange(WIDTH), indexing="ij")
    every = [
        torch.exp(-((rows - row) ** 2 + (columns - column) ** 2) / (2 * sigma**2))
        for row, column in points
    ]
    expected = torch.stack(every).amax(0)
    there = torch.ones(len(points), dtype=torch.bool)
    torch.testing.assert_close(
        gaussians(torch.tensor(points), there, sigma, (HEIGHT, WIDTH)), expected
    )
    # Those of `gaussians_around` end at three sigmas.
    torch.testing.assert_close(map_of(points, sigma), expected, atol=0.0112, rtol=0)
    near = expected > 0.3
    torch.testing.assert_close(map_of(points, sigma)[near], expected[near])


@given(places)
def test_what_was_marked_is_found_again(points):
    heights, found = peaks(map_of(points, 0.5), 0, 0.99, 9)
    assert sorted(map(tuple, found.tolist())) == sorted(set(points))
    assert heights.tolist() == [1.0] * len(set(points))


def test_what_is_not_there_is_not_marked():
    there = torch.tensor([[True, False], [False, False]])
    pixels = torch.tensor([[[1, 2], [3, 3]], [[-4, 99], [0, 0]]])
    marks = marked(pixels, there, (4, 4))
    assert marks.nonzero().tolist() == [[0, 1, 2]]
    assert float(marks.sum()) == 1
    tops = gaussians(pixels, there, 1.0, (4, 4)) == 1
    assert tops.nonzero().tolist() == [[0, 1, 2]]
    assert float(gaussians(pixels, there, 1.0, (4, 4))[1].sum()) == 0


def test_peaks_are_the_highest_around_and_come_in_their_order():
    heat = torch.zeros(6, 12)
    heat[1, 1], heat[1, 2], heat[4, 9], heat[2, 6] = 0.5, 0.4, 0.9, 0.05
    heights, found = peaks(heat, 2, 0.1, 5)
    assert found.tolist() == [[4, 9], [1, 1]]
    assert heights.tolist() == pytest.approx([0.9, 0.5])
    assert len(peaks(heat, 2, 0.1, 1)[1]) == 1
    assert len(peaks(torch.zeros(5, 5), 2, 0.1, 3)[1]) == 0
