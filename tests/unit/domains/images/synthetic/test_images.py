import time

import numpy as np
import pytest
import torch
from torch import nn

from consort.domains.images.synthetic.images import synthetic_images, synthetic_shapes
from consort.domains.images.synthetic.restyling import restyled


def accuracy_of_ridge_regression(inputs, labels, train):
    """The best of three strengths, chosen by the test itself: more than a linear model can do."""
    inputs = inputs - inputs[:train].mean(0)
    kernel = inputs[:train] @ inputs[:train].T
    one_hot = np.eye(10, dtype=np.float32)[labels[:train]]
    accuracies = []
    for strength in (100, 1000, 10_000):
        dual = np.linalg.solve(kernel + strength * np.eye(train, dtype=np.float32), one_hot)
        scores = inputs[train:] @ (inputs[:train].T @ dual)
        accuracies.append((scores.argmax(1) == labels[train:]).mean())
    return max(accuracies)


def accuracy_of_small_cnn(inputs, labels, train):
    generator = torch.Generator().manual_seed(0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(
            *(nn.Conv2d(3, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(16, 32, 5), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(32 * 25, 64), nn.ReLU(), nn.Linear(64, 10)),
        )
    parameters = list(model.parameters())
    velocities = [torch.zeros_like(parameter) for parameter in parameters]
    for _ in range(5):
        for batch in torch.randperm(train, generator=generator).split(32):
            loss = nn.functional.cross_entropy(model(inputs[batch]), labels[batch])
            gradients = torch.autograd.grad(loss, parameters)
            with torch.no_grad():
                torch._foreach_mul_(velocities, 0.9)
                torch._foreach_add_(velocities, gradients)
                torch._foreach_add_(parameters, velocities, alpha=-0.03)
    with torch.inference_mode():
        return (model(inputs[train:]).argmax(1) == labels[train:]).float().mean().item()


def test_pixels_alone_do_not_tell_the_class_but_a_small_cnn_can():
    dataset = synthetic_images(0, per_class=150)
    train = 1200
    prepared = dataset.prepare(dataset.examples.inputs)
    linear = accuracy_of_ridge_regression(prepared.flatten(1).numpy(), dataset.labels, train)
    cnn = accuracy_of_small_cnn(prepared, dataset.examples.targets["classify"], train)
    assert linear < 0.5
    assert cnn > linear + 0.25


def test_options():
    dataset = synthetic_images(0, classes=40, per_class=3, size=20, channels=1, domains=4)
    assert dataset.examples.inputs.shape == (120, 1, 20, 20)
    assert dataset.examples.inputs.dtype == torch.uint8
    assert np.bincount(dataset.labels).tolist() == [3] * 40
    assert np.bincount(dataset.domains).tolist() == [30] * 4
    assert synthetic_images(0, per_class=2).domains is None


def test_noise_is_the_deviation_of_a_pixel():
    clean, noisy = (
        synthetic_images(0, per_class=20, noise=noise).examples.inputs.float() / 255
        for noise in (0.0, 0.05)
    )
    middle = (clean > 0.2) & (clean < 0.8)
    assert (noisy - clean)[middle].std().item() == pytest.approx(0.05, rel=0.03)


def test_domains_look_unlike():
    dataset = synthetic_images(1, per_class=100, domains=3)
    means = [
        dataset.examples.inputs[torch.from_numpy(dataset.domains == domain)].float().mean((0, 2, 3))
        for domain in range(3)
    ]
    for first, second in ((0, 1), (0, 2), (1, 2)):
        assert (means[first] - means[second]).abs().max() > 10


def test_a_style_is_the_same_for_all_pictures_of_a_domain():
    pictures = np.full((2, 3, 8, 8), 0.5, dtype=np.float32)
    styled = restyled(np.random.default_rng(0), pictures)
    assert np.ptp(styled, axis=(0, 2, 3)).max() < 1e-6, "a flat picture stays flat"
    assert styled.shape == pictures.shape


def test_both_tasks_are_on_every_picture():
    dataset = synthetic_shapes(0, shapes=3, textures=2, examples=60)
    shape, texture = dataset.examples.targets["shape"], dataset.examples.targets["texture"]
    assert list(dataset.tasks) == ["shape", "texture"]
    assert torch.bincount(shape * 2 + texture).tolist() == [10] * 6
    assert dataset.labels.tolist() == (shape * 2 + texture).tolist()


def test_thousands_a_second():
    start = time.perf_counter()
    synthetic_images(0, per_class=400)
    assert time.perf_counter() - start < 8
