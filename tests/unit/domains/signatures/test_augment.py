import kornia
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from consort.domains.signatures import transforms
from consort.domains.signatures.augment import SCHEMES, augmented
from consort.domains.signatures.synthetic.signatures import synthetic_signatures

GEOMETRIC = ("shear", "translation", "rotation")
OTHERS = (
    "contrast",
    "brightness",
    "gamma",
    "gaussian_noise",
    "gaussian_blur",
    "motion_blur",
    "cropping",
)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def uniform(low, high, shape, generator):
    return low + (high - low) * torch.rand(shape, generator=generator)


@pytest.fixture(scope="module")
def images():
    dataset = synthetic_signatures(0, users=2, genuine=3, forged=3)
    return dataset.prepare(dataset.examples.inputs)


# The ten transforms


@pytest.mark.parametrize("name", GEOMETRIC + OTHERS)
def test_every_transform_changes_images_and_stays_in_range(name, images):
    transform = getattr(transforms, name)
    before = images.clone()
    torch.manual_seed(1)
    once = transform(images, seeded())
    torch.manual_seed(2)
    assert torch.equal(transform(images, seeded()), once), "other randomness than the generator's"
    assert not torch.equal(transform(images, seeded(1)), once)
    assert torch.equal(images, before), "the images given are changed"
    assert once.shape == images.shape
    assert once.isfinite().all()
    assert once.min() >= 0
    assert once.max() <= 1 + 1e-6
    assert (once != images).flatten(1).any(1).sum() > len(images) / 2


@pytest.mark.parametrize("name", GEOMETRIC + OTHERS)
@given(
    shape=st.tuples(*(st.integers(1, 3), st.integers(1, 2), st.integers(6, 20), st.integers(6, 20)))
)
@settings(deadline=None, max_examples=5)
def test_blank_images_of_any_shape_stay_finite(name, shape):
    result = getattr(transforms, name)(torch.zeros(shape), seeded())
    assert result.shape == shape
    assert result.isfinite().all()
    if name != "gaussian_noise":
        assert not result.any()


def test_a_rotation_is_that_of_kornia(images):
    angle = uniform(-10, 10, (len(images),), seeded())
    expected = kornia.geometry.transform.rotate(images, -angle)
    assert_alike(transforms.rotation(images, seeded()), expected)


def test_a_translation_is_that_of_kornia(images):
    share = uniform(-0.05, 0.05, (2, len(images)), seeded())
    shift = -share.T * torch.tensor([96, 64])
    expected = kornia.geometry.transform.translate(images, shift)
    assert_alike(transforms.translation(images, seeded()), expected)


def test_shear_tilts_lines_across_it_and_leaves_lines_along_it():
    upright = torch.zeros(200, 1, 41, 41)
    upright[:, :, :, 20] = 1
    rows = transforms.shear(upright, seeded())[:, 0, 5:36]
    columns = transforms.shear(upright.mT, seeded())[:, 0, :, 5:36].mT
    axis = torch.arange(41.0)
    tilts = []
    for line in (rows, columns):
        places = (line * axis).sum(2) / line.sum(2)
        assert torch.allclose(places[:, 15], torch.full((200,), 20.0), atol=0.01)
        tilts.append((places[:, 30] - places[:, 0]) / 30)
    tilted = [tilt.abs() > 1e-4 for tilt in tilts]
    assert torch.equal(tilted[0], ~tilted[1]), "one way or the other"
    assert 60 < tilted[0].sum() < 140
    slopes = torch.where(tilted[0], *tilts)
    assert 0.9 < slopes.abs().max() / np.tan(np.radians(8)) <= 1.001


def test_a_gaussian_blur_is_that_of_kornia(images):
    deviation = uniform(0.5, 1.5, (len(images),), seeded())
    side = 2 * int((3 * deviation.max()).ceil()) + 1
    expected = kornia.filters.gaussian_blur2d(
        images, (side, side), deviation[:, None].expand(-1, 2), border_type="constant"
    )
    assert_alike(transforms.gaussian_blur(images, seeded()), expected)


def test_motion_blur_spreads_a_point_along_a_line():
    points = torch.zeros(60, 1, 21, 21)
    points[:, :, 10, 10] = 1
    smeared = transforms.motion_blur(points, seeded())[:, 0]
    assert torch.allclose(smeared.sum((1, 2)), torch.ones(60))
    axis = torch.arange(-10.0, 11.0)
    xx, yy = (smeared * axis**2).sum((1, 2)), (smeared * axis[:, None] ** 2).sum((1, 2))
    xy = (smeared * axis * axis[:, None]).sum((1, 2))
    moments = torch.linalg.eigvalsh(torch.stack([xx, xy, xy, yy], 1).view(-1, 2, 2))
    assert moments[:, 0].max() < 0.4, "thin"
    lengths = (12 * moments[:, 1] + 1).sqrt().round()
    assert set(lengths.tolist()) <= {4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0}
    assert lengths.min() < 6 < 8 < lengths.max() + 1


def test_tones_by_hand(images):
    factor = uniform(0.8, 1.2, (len(images), 1, 1, 1), seeded())
    power = uniform(0.7, 1.5, (len(images), 1, 1, 1), seeded())
    mean = images.mean((1, 2, 3), keepdim=True)
    assert torch.equal(transforms.brightness(images, seeded()), (images * factor).clamp(0, 1))
    assert torch.allclose(
        transforms.contrast(images, seeded()), (mean + factor * (images - mean)).clamp(0, 1)
    )
    assert torch.allclose(transforms.gamma(images, seeded()), images**power)


def test_noise_has_the_deviation_it_should_have():
    grey = torch.full((4, 1, 100, 100), 0.5)
    noise = transforms.gaussian_noise(grey, seeded()) - grey
    assert noise.std().item() == pytest.approx(0.02, rel=0.05)


def test_one_to_three_boxes_are_removed():
    cropped = transforms.cropping(torch.ones(300, 1, 50, 80), seeded())[:, 0]
    assert set(cropped.unique().tolist()) == {0, 1}
    removed = 1 - cropped
    share = removed.mean((1, 2))
    assert share.min() > 0.03**2
    assert share.max() < 3 * 0.17**2
    rows = removed.amax(2).sum(1)
    assert rows.min() >= 2
    assert rows.max() <= 24
    assert removed.mean(0).std() < removed.mean(0).mean(), "everywhere alike"


def assert_alike(found, expected):
    inner = (slice(None), slice(None), slice(5, -5), slice(5, -5))
    assert (found[inner] - expected[inner]).abs().max() < 2e-3


# The five schemes


def test_the_schemes_are_those_of_the_specification():
    named = [[(step.__name__, chance) for step, chance in scheme] for scheme in SCHEMES]
    assert named == [
        [("cropping", 0.4), ("rotation", 0.5)],
        [("translation", 0.4), ("brightness", 0.5)],
        [("contrast", 0.5), ("gamma", 0.4)],
        [("gaussian_noise", 0.3), ("gaussian_blur", 0.3)],
        [("shear", 0.3), ("motion_blur", 0.2)],
    ]


def test_every_image_draws_its_scheme_and_each_of_its_transforms():
    """Each transform leaves a digit of its own, so that what was applied can be read off."""
    schemes = tuple(
        tuple(
            (lambda x, _, d=10**place * (1 + number): x + d, 0.3 + 0.4 * place) for place in (0, 1)
        )
        for number in range(5)
    )
    count = 20_000
    sums = augmented(torch.zeros(count, 1, 1, 1), seeded(), schemes).flatten().long()
    first, second = sums % 10, sums // 10
    both = (first > 0) & (second > 0)
    assert torch.equal(first[both], second[both]), "a scheme's transforms come together"
    for number in range(1, 6):
        share = [float((digit == number).sum()) / count for digit in (first, second)]
        assert share == pytest.approx([0.3 / 5, 0.7 / 5], abs=0.01)
    assert float(both.sum()) / count == pytest.approx(0.21, abs=0.015), "independently"


def test_the_same_generator_gives_the_same_bits_and_touches_nothing_else(images):
    before, state = images.clone(), torch.get_rng_state()
    once = augmented(images, seeded())
    assert torch.equal(augmented(images, seeded()), once)
    assert not torch.equal(augmented(images, seeded(1)), once)
    assert torch.equal(images, before)
    assert torch.equal(torch.get_rng_state(), state)


def test_no_images_are_no_problem():
    assert augmented(torch.zeros(0, 1, 8, 8), seeded()).shape == (0, 1, 8, 8)
