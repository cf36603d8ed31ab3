import numpy as np
import pytest

from consort.domains.fingerprints.synthetic.prints import synthetic_fingerprints
from consort.domains.fingerprints.views import second_views


@pytest.fixture(scope="module")
def prints():
    dataset = synthetic_fingerprints(0, fingers=6, impressions=2, sensors=1, size=64)
    return dataset.examples.inputs[:, 0, 0].numpy()


def correlation(one, other):
    return np.corrcoef(one.ravel(), other.ravel())[0, 1]


def test_a_view_depends_on_the_seed_alone(prints):
    assert np.array_equal(second_views(prints, 1), second_views(prints, 1))
    assert not np.array_equal(second_views(prints, 1), second_views(prints, 2))


def test_a_view_is_another_picture_of_the_same_print(prints):
    views = second_views(prints, 0)
    assert views.shape == prints.shape
    assert views.dtype == np.uint8
    assert (views != prints).any(axis=(1, 2)).all()
    assert np.abs(views.mean((1, 2)) - prints.mean((1, 2))).max() < 30


def test_equal_prints_get_unlike_views(prints):
    one, other = second_views(prints[[0, 0]], 0)
    assert correlation(one, other) < 0.9


@pytest.mark.parametrize("grey", [0, 77, 255])
def test_a_constant_image_stays_so(grey):
    images = np.full((2, 20, 20), grey, dtype=np.uint8)
    assert np.array_equal(second_views(images, 0), images)
