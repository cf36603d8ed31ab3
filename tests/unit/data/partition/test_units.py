import numpy as np
import pytest
import torch

from consort.data.dataset import Dataset
from consort.data.examples import Examples
from consort.data.partition import Cut, partition
from consort.errors import UsageError
from consort.tasks import Classification


def dataset(units, domains=None):
    labels = np.zeros_like(units)
    return Dataset(
        "units",
        Examples(torch.arange(len(units))[:, None], {"classify": torch.from_numpy(labels)}),
        {"classify": Classification(2)},
        labels,
        domains=domains,
        units=units,
    )


@pytest.mark.parametrize("by", ["iid", "quantity", "domain"])
def test_no_unit_is_torn_apart_and_nothing_is_lost(by):
    rng = np.random.default_rng(0)
    units = rng.permutation(np.repeat(np.arange(40) * 7, rng.integers(1, 6, 40)))
    shares = partition(dataset(units, units % 2), 4, Cut(by=by, min_examples=3), 0)
    parts = [part for share in shares for part in (share.train, share.validation, share.test)]
    assert sorted(np.concatenate(parts)) == list(range(len(units)))
    held = [set(units[part]) for part in parts]
    assert sum(map(len, held)) == 40
    assert all(len(part) for part in parts)
    assert all((np.diff(part) > 0).all() for part in parts)
    if by == "domain":
        assert all(len(set(units[share.train] % 2)) == 1 for share in shares)


def test_units_of_one_are_cut_like_examples():
    units = np.arange(30)
    whole, plain = dataset(units), dataset(units)
    object.__setattr__(plain, "units", None)
    for one, other in zip(
        partition(whole, 3, Cut(), 5), partition(plain, 3, Cut(), 5), strict=True
    ):
        assert np.array_equal(one.train, other.train)
        assert np.array_equal(one.test, other.test)


def test_units_are_what_is_counted():
    units = np.repeat(np.arange(12), 10)
    with pytest.raises(UsageError, match="has 12"):
        partition(dataset(units), 2, Cut(min_examples=10), 0)
