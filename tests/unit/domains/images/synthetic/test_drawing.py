import numpy as np
import pytest

from consort.domains.images.synthetic.drawing import SHAPES, TEXTURES, draw

PLAIN, COLUMNS, ROWS, CHECKS, DOTS = range(len(TEXTURES))
COUNT = 200


def pictures(shape, texture, channels=1):
    shapes, textures = (np.full(COUNT, kind) for kind in (shape, texture))
    return draw(np.random.default_rng(0), shapes, textures, size=32, channels=channels)


def of_shape(images):
    return images > 0.275  # halfway between the lightest ground and the darkest ink


def test_values_are_intensities_whatever_the_size_of_a_group():
    shapes, textures = np.arange(600) % len(SHAPES), np.arange(600) % len(TEXTURES)
    images = draw(np.random.default_rng(0), shapes, textures, size=20, channels=2)
    assert images.shape == (600, 2, 20, 20)
    assert images.min() >= 0
    assert images.max() <= 1.05


def test_a_disc_has_the_area_of_a_disc():
    covered = of_shape(pictures(0, PLAIN)).mean((1, 2, 3))
    assert covered.min() == pytest.approx(np.pi * 0.55**2 / 4, rel=0.1)
    assert covered.max() == pytest.approx(np.pi * 0.8**2 / 4, rel=0.1)


@pytest.mark.parametrize("shape", range(len(SHAPES)))
def test_every_shape_is_seen_on_its_ground(shape):
    covered = of_shape(pictures(shape, PLAIN)).mean((1, 2, 3))
    assert covered.min() > 0.05
    assert covered.max() < 0.6


def changes(texture, axis):
    """How much neighbours differ along an axis, inside discs."""
    images = pictures(0, texture)
    inside = of_shape(images)
    both = np.delete(inside, 0, axis) & np.delete(inside, -1, axis)
    return np.abs(np.diff(images, axis=axis))[both].mean()


def test_textures_differ_in_the_directions_in_which_they_change():
    down, across = ({t: changes(t, axis) for t in range(len(TEXTURES))} for axis in (2, 3))
    assert across[COLUMNS] > 2 * down[COLUMNS]
    assert down[ROWS] > 2 * across[ROWS]
    for texture in (CHECKS, DOTS):
        assert down[texture] == pytest.approx(across[texture], rel=0.15)
        assert down[texture] > 1.5 * down[PLAIN]
