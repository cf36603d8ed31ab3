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
@given(seeds, st.lists(st.integers(3, 80), min_size=1, max_size=5), st.integers(1, 9), fractions)
def test_each_label_is_divided_like_the_whole_to_within_one_example(seed, sizes, classes, asked):
    parts = parts_of(sizes)
    labels = np.random.default_rng(seed).integers(0, classes, sum(sizes))
    for part, pieces in zip(
        parts, divide(parts, labels, *asked, np.random.default_rng(seed)), strict=True
    ):
        whole = np.bincount(labels[part], minlength=classes)
        for piece in pieces:
            counts = np.bincount(labels[piece], minlength=classes)
            assert np.abs(counts - whole * len(piece) / len(part)).max() <= 1 + 1e-9


def test_chance_decides_which_examples_are_set_aside():
    labels = np.zeros(20, dtype=np.int64)
    times = np.zeros(20)
    for seed in range(400):
        rng = np.random.default_rng(seed)
        ((_, _, test),) = divide([np.arange(20)], labels, 0.2, 0.2, rng)
        times[test] += 1
    assert np.allclose(times / 400, 0.2, atol=0.08)
