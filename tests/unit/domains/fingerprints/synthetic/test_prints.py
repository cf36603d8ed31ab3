import numpy as np
import pytest
import torch

from consort.data.registry import load_dataset
from consort.domains.fingerprints.synthetic.impressions import SENSORS, impression
from consort.domains.fingerprints.synthetic.prints import synthetic_fingerprints
from consort.domains.fingerprints.synthetic.ridges import (
    KINDS,
    _singular_points,
    grown,
    master_print,
    orientation,
)
from consort.errors import UsageError


def turns(directions, row, column, reach):
    """By how many half turns the ridges turn on the way around a pixel."""
    angles = np.linspace(0, 2 * np.pi, 200)
    rows = np.rint(row - reach * np.sin(angles)).astype(int)
    columns = np.rint(column + reach * np.cos(angles)).astype(int)
    steps = np.diff(directions[rows, columns])
    return ((steps + np.pi / 2) % np.pi - np.pi / 2).sum() / np.pi


@pytest.mark.parametrize(
    ("kind", "cores", "deltas"),
    [("tented arch", 1, 1), ("left loop", 1, 1), ("right loop", 1, 1), ("whorl", 2, 2)],
)
def test_ridges_turn_half_around_cores_and_back_around_deltas(kind, cores, deltas, monkeypatch):
    shares = np.array(KINDS) == kind
    monkeypatch.setattr(
        "consort.domains.fingerprints.synthetic.ridges.SHARES", shares.astype(float)
    )
    points = _singular_points(np.random.default_rng(0), kind)
    assert tuple(map(len, points)) == (cores, deltas)
    directions = orientation(np.random.default_rng(0), 201)
    assert round(turns(directions, 100, 100, 99)) == cores - deltas


def test_ridges_follow_their_directions_at_their_distance():
    directions = np.full((96, 96), np.pi / 6, dtype=np.float32)
    ridges = grown(np.random.default_rng(0), directions, 6.0)
    spectrum = np.abs(np.fft.fft2(ridges))
    row, column = np.unravel_index(spectrum[:, :48].argmax(), (96, 48))
    wave = complex(np.fft.fftfreq(96)[column], -np.fft.fftfreq(96)[row])
    assert 1 / abs(wave) == pytest.approx(6, abs=0.6)
    assert np.angle(wave) % np.pi == pytest.approx(np.pi / 6 + np.pi / 2, abs=0.15)


def test_ridges_and_valleys_are_of_one_width():
    ridges = master_print(np.random.default_rng(0), 96, 5.0)
    assert abs(ridges.mean()) < 0.05
    assert np.abs(ridges).mean() > 0.5


def test_impressions_of_a_finger_are_more_alike_than_those_of_two():
    """By coarse power spectra, which tell how many ridges run which way, wherever they are."""
    images = synthetic_fingerprints(0, fingers=12, impressions=2, sensors=1).examples.inputs[
        :, :, 0
    ]
    power = torch.fft.fftshift(
        torch.fft.rfft2(images - images.double().mean((2, 3), True)).abs(), 2
    )
    coarse = torch.nn.functional.avg_pool2d(power, 5, 2).transpose(0, 1).flatten(2)
    coarse = coarse - coarse.mean((0, 1))
    likeness = torch.corrcoef(coarse.flatten(0, 1))[:12, 12:]
    others = likeness[~torch.eye(12, dtype=torch.bool)]
    assert likeness.diagonal().mean() > others.mean() + 0.3


def test_sensors_differ_in_their_grey():
    data = synthetic_fingerprints(0, fingers=8, impressions=2, sensors=4, size=48)
    means = [data.examples.inputs[data.domains == sensor].double().mean() for sensor in range(4)]
    assert min(abs(one - other) for one in means for other in means if one is not other) > 5


def test_a_coarse_sensor_shows_less_detail():
    finger = master_print(np.random.default_rng(0), 144, 5.0)
    frequency = np.hypot(np.fft.fftfreq(96), np.fft.fftfreq(96)[:, None])

    def detail(sensor):
        image = impression(np.random.default_rng(1), finger, 96, sensor)
        power = np.abs(np.fft.fft2(image - image.mean())) ** 2
        return power[frequency > 0.35].sum() / power.sum()

    assert detail(SENSORS[0]) > 2 * detail(SENSORS[2])


def test_fingers_do_not_depend_on_how_many_there_are():
    few, many = (synthetic_fingerprints(0, fingers=n, impressions=2, size=32) for n in (3, 6))
    assert torch.equal(few.examples.inputs, many.examples.inputs[:3])


def test_pairs_of_impressions_and_of_views():
    assert len(synthetic_fingerprints(0, fingers=3, impressions=4, size=32)) == 3 * 6
    assert len(synthetic_fingerprints(0, fingers=3, impressions=4, size=32, per_finger=2)) == 6
    views = synthetic_fingerprints(0, fingers=3, impressions=1, size=32, pairs="augmented")
    assert len(views) == 3
    with pytest.raises(UsageError, match="one impression of each finger"):
        load_dataset("synthetic_fingerprints", 0, None, fingers=2, impressions=1, size=32)
