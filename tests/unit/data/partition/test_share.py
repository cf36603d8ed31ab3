import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from consort.data.partition.share import divide

seeds = st.integers(0, 2**32)
few = settings(max_examples=60, deadline=None)
fractions = st.tuples(st.floats(0.01, 0.98), st.floats(0.01, 0.98)).filter(lambda f: sum(f) < 0.999)


def parts_of(sizes):
    return np.split(np.random.default_rng(1).permutation(sum(sizes)), np.cumsum(sizes)[:-1])


@few
@given(seeds, st.lists(st.integers(1, 30), min_size=1, max_size=12), fractions)
def test_every_example_is_in_exactly_one_place(seed, sizes, asked):
    parts = parts_of(sizes)
    labels = np.random.default_rng(2).integers(0, 4, sum(sizes))
    divided = divide(parts, labels, *asked, np.random.default_rng(seed))
    for part, pieces in zip(parts, divided, strict=True):
        assert np.array_equal(np.sort(np.concatenate(pieces)), np.sort(part))
        assert all(np.array_equal(piece, np.sort(piece)) for piece in pieces)
        train, validation, test = map(len, pieces)
        assert train >= 1
        if len(part) >= 3:
            assert validation >= 1
            assert test >= 1
        else:
            assert validation == test == 0


@few
@given(seeds, st.integers(20, 400))
def test_sizes_are_what_was_asked_for(seed, size):
    labels = np.zeros(size, dtype=np.int64)
    rng = np.random.default_rng(seed)
    ((train, validation, test),) = divide([np.arange(size)], labels, 0.15, 0.25, rng)
    assert len(validation) == round(size * 0.15)
    assert len(test) == round(size * 0.25)
    assert len(train) == size - len(validation) - len(test)


@few
@given(seeds, st.lists(st.integers(0, 60), min_size=1, max_size=6).filter(lambda c: sum(c) > 10))
def test_each_label_is_divided_like_the_whole(seed, counts):
    labels = np.repeat(np.arange(len(counts)), counts)
    rng = np.random.default_rng(seed)
    ((_, validation, test),) = divide([np.arange(len(labels))], labels, 0.2, 0.3, rng)
    aside = np.concatenate([validation, test])
    for label, count in enumerate(counts):
        assert abs((labels[aside] == label).sum() - count * len(aside) / len(labels)) < 1
        assert abs((labels[test] == label).sum() - count * len(test) / len(labels)) < 2


def test_chance_decides_which_examples_are_set_aside():
    labels = np.zeros(20, dtype=np.int64)
    times = np.zeros(20)
    for seed in range(400):
        rng = np.random.default_rng(seed)
        ((_, _, test),) = divide([np.arange(20)], labels, 0.2, 0.2, rng)
        times[test] += 1
    assert np.allclose(times / 400, 0.2, atol=0.08)
