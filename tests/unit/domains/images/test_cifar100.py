import numpy as np
import pytest
import torch

from consort.data.registry import load_dataset
from consort.domains.images.cifar100 import cifar100
from consort.errors import Failure, UsageError


def records(count, first=0):
    numbers = first + np.arange(count)
    labels = np.column_stack([numbers % 20, numbers % 100]).astype(np.uint8)
    pixels = np.random.default_rng(first).integers(0, 256, (count, 3072), dtype=np.uint8)
    return np.hstack([labels, pixels])


@pytest.fixture
def published(tmp_path):
    folder = tmp_path / "cifar-100-binary"
    folder.mkdir()
    records(5, 96).tofile(folder / "train.bin")
    records(3, 40).tofile(folder / "test.bin")
    return folder


def test_both_parts_with_their_fine_labels(published):
    dataset = cifar100(published.parent)
    assert dataset.labels.tolist() == [96, 97, 98, 99, 0, 40, 41, 42]
    assert dataset.examples.targets["classify"].tolist() == dataset.labels.tolist()
    assert dataset.tasks["classify"].classes == 100
    assert dataset.examples.inputs.shape == (8, 3, 32, 32)
    assert dataset.examples.inputs.dtype == torch.uint8
    blue_of_last = dataset.examples.inputs[7, 2].flatten().tolist()
    assert blue_of_last == records(3, 40)[2, 2 + 2048 :].tolist()
    assert dataset.prepare(dataset.examples.inputs).abs().max() <= 1


def test_coarse_labels(published):
    dataset = load_dataset("cifar100", 0, published.parent, labels="coarse")
    assert dataset.labels.tolist() == [16, 17, 18, 19, 0, 0, 1, 2]
    assert dataset.tasks["classify"].classes == 20


def test_other_labels_are_refused(published):
    with pytest.raises(UsageError, match="labels = 'middle': input should be 'fine' or 'coarse'"):
        load_dataset("cifar100", 0, published.parent, labels="middle")


def test_one_part_alone_is_not_enough(published):
    (published / "test.bin").unlink()
    with pytest.raises(UsageError, match=r"train\.bin beside cifar-100-binary/test\.bin"):
        cifar100(published.parent)


@pytest.mark.parametrize(
    "content",
    [b"", b"\0" * 3073, b"\x14\0" + b"\0" * 3072, b"\0\x64" + b"\0" * 3072],
    ids=["empty", "short", "coarse label 20", "fine label 100"],
)
def test_a_damaged_part_is_named(published, content):
    (published / "train.bin").write_bytes(content)
    expected = "train.bin is damaged: .* 3074 bytes that begin with a class 0 to 19 and a class"
    with pytest.raises(Failure, match=expected):
        cifar100(published.parent)
