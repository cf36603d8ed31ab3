from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import maximum_bipartite_matching

from consort.domains.scenes.metrics.dense import best_f_measure
from consort.domains.scenes.metrics.edges import count_matches, thinned
from consort.domains.scenes.tasks.edges import Edges

EVERYWHERE = torch.ones(1, 12, 12, dtype=torch.bool)


def line(column, size=12):
    marks = torch.zeros(1, size, size, dtype=torch.bool)
    marks[:, :, column] = True
    return marks


def counts(found, truth, reach, known=EVERYWHERE):
    return count_matches(found.float(), truth, known, reach, [0.5])[:, 0].tolist()


@pytest.mark.parametrize(
    ("offset", "reach", "hits"), [(0, 0.5, 12), (1, 0.9, 0), (1, 1.0, 12), (2, 1.9, 0)]
)
def test_edges_match_within_reach(offset, reach, hits):
    assert counts(line(5 + offset), line(5), reach) == [hits, 12, 12]


def test_reach_is_a_circle():
    one, other = (torch.zeros(1, 12, 12, dtype=torch.bool) for _ in range(2))
    one[0, 4, 4] = other[0, 5, 5] = True
    assert counts(one, other, 1.0) == [0, 1, 1]
    assert counts(one, other, 1.5) == [1, 1, 1]


def test_unknown_pixels_do_not_count():
    known = EVERYWHERE.clone()
    known[:, :3] = False
    assert counts(line(5), line(5), 1.0, known) == [9, 9, 9]


def test_thresholds_are_counted_one_by_one():
    strengths = torch.where(line(3), 0.3, 0.0) + torch.where(line(8), 0.8, 0.0)
    found = count_matches(strengths, line(8), EVERYWHERE, 1.0, [0.2, 0.5, 0.9])
    assert found.tolist() == [[12, 12, 0], [24, 12, 0], [12, 12, 12]]
    assert best_f_measure(found, 1.0) == 1.0


def largest_matching(near: torch.Tensor) -> int:
    """By another library."""
    if not near.numel():
        return 0
    pairs = maximum_bipartite_matching(csr_matrix(near.numpy()), perm_type="column")
    return int(np.sum(pairs >= 0))


@given(st.integers(0, 999), st.sampled_from([0.5, 1.0, 1.5, 2.9]), st.sampled_from([0.2, 0.6]))
def test_the_matching_is_the_largest_at_every_threshold(seed, reach, share):
    """What is no number is never found."""
    generator = torch.Generator().manual_seed(seed)
    shape = 2, 7, 9
    strengths = (torch.rand(shape, generator=generator) * 10).round() / 10
    strengths[0, 3, 4] = torch.nan
    truth, known = (torch.rand(shape, generator=generator) < part for part in (share, 0.9))
    thresholds = [0.5, 0.1, 0.9, 0.3]
    found = count_matches(strengths, truth, known, reach, thresholds)
    for place, threshold in enumerate(thresholds):
        edges = ((strengths >= threshold) & known).nonzero().double()
        true = (truth & known).nonzero().double()
        apart = torch.tensor([1e3, 1.0, 1.0], dtype=torch.double)
        near = torch.cdist(edges * apart, true * apart) <= reach
        expected = largest_matching(near), len(edges), len(true)
        assert found[:, place].tolist() == list(expected)


def test_a_true_pixel_is_matched_once():
    """A band of three columns finds a line of one: a third of it is right."""
    band = line(4) | line(5) | line(6)
    assert counts(band, line(5), 1.0) == [12, 36, 12]
    assert best_f_measure(torch.tensor([[12], [36], [12]]), 1.0) == pytest.approx(0.5)


@pytest.mark.parametrize(("size", "away", "score"), [(16, 1, 1.0), (16, 2, 0.0), (300, 3, 1.0)])
def test_a_pixel_of_distance_is_always_tolerated(size, away, score):
    """0.0075 of the diagonal is 0.2 pixels of a small image, and 3.2 of a large one."""
    meter = Edges().meter()
    logits = torch.where(line(size // 2 + away, size), 9.0, -9.0)[:, None]
    meter.update(logits, line(size // 2, size).long())
    assert meter.compute()["ods_f"] == score


@pytest.mark.parametrize("slope", [0.0, 0.5, 1.0, -2.0])
def test_a_blurred_line_becomes_thin(slope):
    rows, columns = torch.meshgrid(torch.arange(40.0), torch.arange(40.0), indexing="ij")
    away = (columns - 20 - slope * (rows - 20)) / (1 + slope**2) ** 0.5
    thin = thinned(torch.exp(-(away**2) / 8)[None])[0]
    kept = thin > 0.05
    inside = slice(6, 34)
    assert float(away[kept][(rows[kept] > 5) & (rows[kept] < 34)].abs().max()) <= 1.0
    across = max(1.0, abs(slope))
    assert kept[inside].sum() <= 28 * across * 1.6
    reached = (thin * (away.abs() <= 0.71)).amax(1)[inside]
    columns_in_sight = (20 + slope * (torch.arange(40.0)[inside] - 20)).clamp(0, 39)
    visible = (columns_in_sight > 2) & (columns_in_sight < 37)
    assert bool((reached[visible] > 0.7).all())


def test_flat_maps_stay_as_they_are():
    flat = torch.full((2, 8, 8), 0.4)
    assert torch.equal(thinned(flat), flat)
