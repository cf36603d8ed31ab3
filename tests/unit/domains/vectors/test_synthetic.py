import time

import numpy as np
import torch

from consort.domains.vectors.synthetic import synthetic_vectors


def test_shapes_and_balance():
    dataset = synthetic_vectors(0, classes=3, examples=10, features=5)
    assert dataset.examples.inputs.shape == (10, 5)
    assert dataset.examples.inputs.dtype == torch.float32
    assert np.bincount(dataset.labels).tolist() == [4, 3, 3]


def test_without_noise_every_class_is_three_points():
    dataset = synthetic_vectors(0, classes=4, examples=400, noise=0)
    for label in range(4):
        members = dataset.examples.inputs[torch.from_numpy(dataset.labels == label)]
        assert len(np.unique(members.numpy().round(3), axis=0)) == 3


def test_values_are_of_the_order_of_one():
    assert 0.5 < synthetic_vectors(0).examples.inputs.std() < 2


def test_neighbours_know_more_than_a_linear_model():
    dataset = synthetic_vectors(0, examples=4000)
    inputs, train = dataset.examples.inputs.numpy(), 3000
    weights = np.linalg.lstsq(inputs[:train], np.eye(10)[dataset.labels[:train]], rcond=None)[0]
    linear = ((inputs[train:] @ weights).argmax(1) == dataset.labels[train:]).mean()
    distances = ((inputs[train:, None] - inputs[None, :train]) ** 2).sum(-1)
    nearest = dataset.labels[:train][distances.argmin(1)]
    assert linear < (nearest == dataset.labels[train:]).mean() - 0.05


def test_very_many_are_made_in_about_a_second():
    start = time.perf_counter()
    assert len(synthetic_vectors(0, examples=200_000)) == 200_000
    assert time.perf_counter() - start < 4
