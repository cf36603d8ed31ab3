from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from consort.domains.scenes.metrics.dense import best_f_measure
from consort.domains.scenes.metrics.edges import count_matches, thinned

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
    assert counts(line(5 + offset), line(5), reach) == [hits, 12, 12, hits]


def test_reach_is_a_circle():
    one, other = (torch.zeros(1, 12, 12, dtype=torch.bool) for _ in range(2))
    one[0, 4, 4] = other[0, 5, 5] = True
    assert counts(one, other, 1.0) == [0, 1, 1, 0]
    assert counts(one, other, 1.5) == [1, 1, 1, 1]


def test_unknown_pixels_do_not_count():
    known = EVERYWHERE.clone()
    known[:, :3] = False
    assert counts(line(5), line(5), 1.0, known) == [9, 9, 9, 9]


def test_thresholds_are_counted_one_by_one():
    strengths = torch.where(line(3), 0.3, 0.0) + torch.where(line(8), 0.8, 0.0)
    found = count_matches(strengths, line(8), EVERYWHERE, 1.0, [0.2, 0.5, 0.9])
    assert found.tolist() == [[12, 12, 0], [24, 12, 0], [12, 12, 12], [12, 12, 0]]
    assert best_f_measure(found, 1.0) == 1.0


@given(st.integers(0, 999), st.sampled_from([0.5, 1.0, 1.5, 2.9]))
def test_all_thresholds_at_once_count_as_every_single_one(seed, reach):
    """What is no number is never found."""
    generator = torch.Generator().manual_seed(seed)
    shape = 2, 7, 9
    strengths = (torch.rand(shape, generator=generator) * 10).round() / 10
    strengths[0, 3, 4] = torch.nan
    truth, known = (torch.rand(shape, generator=generator) < share for share in (0.2, 0.9))
    thresholds = [0.5, 0.1, 0.9, 0.3]
    found = count_matches(strengths, truth, known, reach, thresholds)
    for place, threshold in enumerate(thresholds):
        edges = ((strengths >= threshold) & known).nonzero().double()
        true = (truth & known).nonzero().double()
        apart = torch.tensor([1e3, 1.0, 1.0], dtype=torch.double)
        near = torch.cdist(edges * apart, true * apart) <= reach
        expected = near.any(1).sum(), len(edges), len(true), near.any(0).sum()
        assert found[:, place].tolist() == list(map(int, expected))


@given(st.integers(0, 999))
def test_pairs_are_never_more_than_what_is_counted(seed):
    """The exact number: a largest matching in pairs, by another library."""
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import maximum_bipartite_matching

    generator = torch.Generator().manual_seed(seed)
    found, truth = (torch.rand(1, 12, 12, generator=generator) > 0.85 for _ in range(2))
    near = torch.cdist(found[0].nonzero().double(), truth[0].nonzero().double()) <= 1.5
    pairs = maximum_bipartite_matching(csr_matrix(near.numpy()), perm_type="column")
    matched = int(np.sum(pairs >= 0))
    hits, _, _, recalled = counts(found, truth, 1.5)
    assert matched <= min(hits, recalled)
    assert hits == int(near.any(1).sum())
    assert recalled == int(near.any(0).sum())


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
