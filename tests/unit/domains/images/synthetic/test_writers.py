import numpy as np
import torch

from consort.domains.images.synthetic.glyphs import GLYPHS
from consort.domains.images.synthetic.writers import Hand, _written, synthetic_writers


def test_every_writer_has_their_share():
    dataset = synthetic_writers(0, classes=36, writers=7, per_writer=40)
    assert np.bincount(dataset.owners).tolist() == [40] * 7
    assert dataset.labels.max() <= 35
    assert dataset.examples.inputs.shape == (280, 1, 28, 28)
    assert dataset.examples.inputs.dtype == torch.uint8


def test_dark_ink_on_white_in_every_picture():
    images = synthetic_writers(0, classes=36).examples.inputs.flatten(1).float()
    assert (images.amax(1) == 255).all()
    assert (images.amin(1) < 100).all()
    ink = (images < 128).float().mean(1)
    assert ink.min() > 0.01
    assert ink.max() < 0.5


def test_a_writer_is_more_like_themselves_than_like_others():
    dataset = synthetic_writers(0, writers=10, per_writer=200)
    ink = (255 - dataset.examples.inputs.flatten(1).float()).mean(1).numpy()
    by_writer = np.array([ink[dataset.owners == writer].mean() for writer in range(10)])
    within = np.mean([ink[dataset.owners == writer].std() for writer in range(10)])
    assert by_writer.std() > within


def test_habits_tell_writers_apart_even_with_the_same_hand_and_pen():
    same = Hand(*(np.full((2, 1), value) for value in (0.0, 0.6, 0.4, 0.1, 1.0)))
    owners = np.repeat([0, 1], 200)
    ink = 255.0 - _written(np.random.default_rng(0), GLYPHS[2], same, owners)
    halves = [ink[start : start + 100].mean(0) for start in range(0, 400, 100)]
    within = abs(halves[0] - halves[1]).mean(), abs(halves[2] - halves[3]).mean()
    assert abs(halves[0] - halves[2]).mean() > 2 * max(within)


def test_digits_can_be_told_apart_across_writers():
    dataset = synthetic_writers(0, writers=40)
    inputs = dataset.prepare(dataset.examples.inputs).flatten(1).numpy()
    seen = dataset.owners < 30
    centroids = np.stack([inputs[seen & (dataset.labels == label)].mean(0) for label in range(10)])
    nearest = ((inputs[~seen][:, None] - centroids) ** 2).sum(-1).argmin(1)
    assert 0.5 < (nearest == dataset.labels[~seen]).mean() < 0.95
