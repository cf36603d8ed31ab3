from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from consort.aggregation.linkage import average_linkage


@given(st.integers(1, 9), st.integers(1, 4), st.integers(0, 999))
def test_another_library_finds_the_same_groups(count, groups, seed):
    from sklearn.cluster import AgglomerativeClustering

    points = torch.randn(count, 3, generator=torch.Generator().manual_seed(seed)).double()
    distances = torch.cdist(points, points)
    found = average_linkage(distances, groups)
    assert sorted(place for group in found for place in group) == list(range(count))
    assert len(found) == min(groups, count)
    if 1 < count >= groups:
        theirs = AgglomerativeClustering(groups, metric="precomputed", linkage="average")
        labels = theirs.fit_predict(distances.numpy())
        assert all(len({labels[place] for place in group}) == 1 for group in found)
