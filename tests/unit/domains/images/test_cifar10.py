import numpy as np
import pytest
import torch

from consort.domains.images.cifar10 import BATCHES, cifar10
from consort.errors import Failure, UsageError


def records(count, first_label=0):
    rng = np.random.default_rng(first_label)
    labels = (first_label + np.arange(count, dtype=np.uint8)) % 10
    pixels = rng.integers(0, 256, (count, 3072), dtype=np.uint8)
    return np.column_stack([labels, pixels])


@pytest.fixture
def published(tmp_path):
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    for number, name in enumerate(BATCHES):
        records(4, number).tofile(folder / name)
    return folder


def test_the_published_layout(published):
    dataset = cifar10(published.parent)
    assert dataset.examples.inputs.shape == (24, 3, 32, 32)
    assert dataset.examples.inputs.dtype == torch.uint8
    third = records(4, 2)
    assert dataset.labels[8:12].tolist() == [2, 3, 4, 5]
    assert dataset.examples.targets["classify"].tolist() == dataset.labels.tolist()
    green_of_first = dataset.examples.inputs[8, 1].flatten().tolist()
    assert green_of_first == third[0, 1 + 1024 : 1 + 2048].tolist()
    assert dataset.prepare(dataset.examples.inputs).abs().max() <= 1


def test_the_reduced_layout(tmp_path):
    (tmp_path / "images").mkdir()
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (5, 32, 32, 3), dtype=np.uint8)
    np.savez(
        tmp_path / "images/cifar10_7500.npz",
        x_train=images[:3],
        y_train=np.array([1, 2, 3], dtype=np.uint8),
        x_test=images[3:],
        y_test=np.array([4, 5], dtype=np.uint8),
    )
    dataset = cifar10(tmp_path)
    assert dataset.labels.tolist() == [1, 2, 3, 4, 5]
    assert dataset.examples.inputs[4, 2, 10, 20] == images[4, 10, 20, 2]
    assert dataset.examples.inputs.is_contiguous()


def test_a_missing_batch_is_named(published):
    (published / "data_batch_3.bin").unlink()
    with pytest.raises(UsageError, match=r"data_batch_3\.bin is missing"):
        cifar10(published.parent)


@pytest.mark.parametrize("content", [b"", b"\0" * 3072, b"\x0a" + b"\0" * 3072])
def test_a_damaged_batch_is_named(published, content):
    (published / "test_batch.bin").write_bytes(content)
    with pytest.raises(Failure, match=r"test_batch\.bin is damaged"):
        cifar10(published.parent)


def test_a_damaged_npz_is_named(tmp_path):
    (tmp_path / "images").mkdir()
    path = tmp_path / "images/cifar10_7500.npz"
    path.write_bytes(b"not a zip file")
    with pytest.raises(Failure, match=r"cifar10_7500\.npz is damaged.*x_train"):
        cifar10(tmp_path)
    np.savez(path, x_train=np.zeros(3))
    with pytest.raises(Failure, match=r"cifar10_7500\.npz is damaged.*y_train"):
        cifar10(tmp_path)


def test_real_images(real_data):
    dataset = cifar10(real_data)
    assert len(dataset) in (7500, 60_000)
    assert np.ptp(np.bincount(dataset.labels, minlength=10)) == 0
    means = dataset.prepare(dataset.examples.inputs).mean(dim=(0, 2, 3))
    assert torch.allclose(means, torch.tensor([-0.017, -0.036, -0.107]), atol=0.02)
