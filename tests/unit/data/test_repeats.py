import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from consort.data.repeats import BLOCK, first_of_each


def noise(count, seed=0, size=32):
    return np.random.default_rng(seed).integers(0, 256, (count, 1, size, size), dtype=np.uint8)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=40), st.integers(0, 99))
def test_of_equal_images_the_first_stays(which, seed):
    images = noise(10, seed)[which]
    expected = [number not in which[:place] for place, number in enumerate(which)]
    assert first_of_each(images).tolist() == expected


def test_brightness_contrast_and_a_little_noise_make_no_difference():
    original = noise(1)[0] // 2
    noisy = original + np.random.default_rng(1).integers(0, 4, original.shape, dtype=np.uint8)
    images = np.stack([original, original + 100, original // 2, noisy, noise(1, seed=2)[0]])
    assert first_of_each(images).tolist() == [True, False, False, False, True]


def test_repeats_are_found_far_apart():
    images = noise(2 * BLOCK + 10, size=16)
    images[BLOCK + 3] = images[1]
    images[2 * BLOCK + 9] = images[BLOCK - 1]
    repeats = np.flatnonzero(~first_of_each(images))
    assert repeats.tolist() == [BLOCK + 3, 2 * BLOCK + 9]


def test_blank_images_are_left_alone():
    assert first_of_each(np.zeros((3, 3, 8, 8), np.uint8)).all()
