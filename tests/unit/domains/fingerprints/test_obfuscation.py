import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from consort.domains.fingerprints.obfuscation import FpDfsn, crossing_numbers, high_pass
from consort.domains.fingerprints.synthetic.impressions import SENSORS, impression
from consort.domains.fingerprints.synthetic.ridges import master_print
from consort.errors import UsageError


def drawn(text):
    return np.array([[letter == "#" for letter in line] for line in text.split()])


@pytest.fixture(scope="module")
def fingerprint():
    finger = master_print(np.random.default_rng(0), 144, 5.0)
    return impression(np.random.default_rng(1), finger, 96, SENSORS[0]) / 255


# Crossing numbers


@pytest.mark.parametrize(
    ("skeleton", "expected"),
    [
        ("... .#. ...", 0),
        ("... .## ...", 1),
        ("... ### ...", 2),
        ("#.# .#. .#.", 3),
        ("#.# .#. #.#", 4),
        (".#. ### .#.", 4),
    ],
    ids=["isolated", "line end", "ridge", "fork", "crossing", "upright crossing"],
)
def test_crossing_numbers_of_hand_drawn_skeletons(skeleton, expected):
    assert crossing_numbers(drawn(skeleton))[1, 1] == expected


def test_a_line_has_two_ends_even_at_the_edge():
    numbers = crossing_numbers(drawn("##### ....."))
    assert numbers.tolist() == [[1, 2, 2, 2, 1], [0, 0, 0, 0, 0]]


def test_there_are_no_crossings_off_the_skeleton():
    skeleton = drawn("##.## ..... ##.##")
    assert crossing_numbers(skeleton)[1].tolist() == [0] * 5


# Sharpening


def test_a_constant_image_has_nothing_to_sharpen():
    assert np.abs(high_pass(np.full((20, 30), 0.7), 2.0)).max() < 1e-12


def test_with_a_cutoff_near_zero_only_the_mean_goes():
    image = np.random.default_rng(0).random((16, 24))
    assert high_pass(image, 1e-6) == pytest.approx(image - image.mean())


def test_it_is_the_filter_that_is_printed():
    """Centred with (-1)^(x+y), multiplied, brought back and centred again; real part."""
    image = np.random.default_rng(0).random((16, 24))
    sign = (-1.0) ** np.add.outer(np.arange(16), np.arange(24))
    squared = np.add.outer((np.arange(16) - 8) ** 2, (np.arange(24) - 12) ** 2)
    damped = np.fft.fft2(image * sign) * (1 - np.exp(-squared / (2 * 3.0**2)))
    expected = (np.fft.ifft2(damped) * sign).real
    assert high_pass(image, 3.0) == pytest.approx(expected)


# Minutiae


def ridges(height=64, width=64, period=8):
    """Upright ridges, dark on white."""
    columns = np.arange(width) % period < period // 2
    return 1 - np.broadcast_to(columns, (height, width)).astype(float)


def test_a_ridge_that_ends_has_a_minutia_where_it_ends():
    whole, broken = ridges(), ridges()
    broken[32:, 24:28] = 1
    plain, found = (FpDfsn().minutiae(image) for image in (whole, broken))
    assert not plain.any()
    (row, column), *more = np.argwhere(found)
    assert not more
    assert abs(row - 31) <= 3
    assert 23 <= column <= 28


def test_joined_ridges_have_minutiae_where_they_join():
    joined = ridges()
    joined[30:34, 28:32] = 0
    found = np.argwhere(FpDfsn().minutiae(joined))
    assert len(found) == 2
    assert np.abs(found[:, 0] - 31.5).max() <= 3


def test_minutiae_near_the_edge_are_not_trusted(fingerprint):
    found = np.argwhere(FpDfsn(margin=0.25).minutiae(fingerprint))
    assert len(found)
    assert found.min() >= 24
    assert found.max() < 72


def test_a_fingerprint_has_many_and_so_has_its_negative(fingerprint):
    for image in (fingerprint, 1 - fingerprint):
        assert 20 < FpDfsn().minutiae(image).sum() < 500


@pytest.mark.parametrize("image", [np.zeros((96, 96)), np.ones((96, 96)), np.full((40, 60), 0.4)])
def test_constant_images_have_none(image):
    assert not FpDfsn().minutiae(image).any()


@pytest.mark.parametrize("shape", [(1, 1), (2, 9), (12, 12)])
def test_images_within_the_margin_have_none_and_are_only_scaled(shape):
    image = torch.from_numpy(np.random.default_rng(0).random((1, *shape)))
    assert torch.equal(FpDfsn(beta=0.25)(image, 0), 0.75 * image)


# The whole


def test_without_noise_it_only_scales(fingerprint):
    images = torch.from_numpy(fingerprint)[None].float()
    assert torch.equal(FpDfsn(beta=0.5, sigma=0.0)(images, 0), images * 0.5)
    assert torch.equal(FpDfsn(beta=0.0)(images, 0), images)
    assert not FpDfsn(beta=1.0, sigma=0.0)(images, 0).any()


def test_only_the_neighbourhoods_of_minutiae_are_noisy(fingerprint):
    way = FpDfsn(beta=0.4, reach=2)
    found = way(torch.from_numpy(fingerprint)[None], 0)[0].numpy()
    noisy = np.zeros(fingerprint.shape, dtype=bool)
    for row, column in np.argwhere(way.minutiae(fingerprint)):
        noisy[row - 2 : row + 3, column - 2 : column + 3] = True
    assert np.array_equal(found[~noisy], 0.6 * fingerprint[~noisy])
    inner = noisy & (fingerprint > 0.5)
    assert (found - 0.6 * fingerprint)[inner].std() == pytest.approx(0.4 * 0.1, rel=0.15)
    assert found.min() >= 0


@given(st.floats(0, 1), st.floats(0, 3), st.integers(0, 9))
def test_results_stay_between_0_and_1(beta, sigma, seed):
    images = torch.rand(1, 24, 24, generator=torch.Generator().manual_seed(seed))
    found = FpDfsn(beta=beta, sigma=sigma)(images, seed)
    assert found.shape == images.shape
    assert found.dtype == images.dtype
    assert 0 <= found.min() <= found.max() <= 1


def test_noise_depends_on_the_seed_and_on_the_image_alone(fingerprint):
    one = torch.from_numpy(fingerprint).float()
    other = one.flip(1)
    pairs = torch.stack([one, other, other, one]).view(2, 2, 1, 96, 96)
    found = FpDfsn()(pairs, 3)
    assert torch.equal(found[0, 0], found[1, 1])
    assert torch.equal(found, FpDfsn()(pairs, 3))
    assert torch.equal(found[:1], FpDfsn()(pairs[:1], 3))
    assert not torch.equal(found, FpDfsn()(pairs, 4))
    assert FpDfsn()(pairs[:0], 3).shape == (0, 2, 1, 96, 96)


@pytest.mark.parametrize(
    "images",
    [torch.zeros(1, 8, 8, dtype=torch.uint8), torch.full((1, 8, 8), -0.1), torch.ones(3, 3)],
)
def test_what_is_no_image_from_0_to_1_is_refused(images):
    with pytest.raises(UsageError, match="images with values from 0 to 1"):
        FpDfsn()(images, 0)
