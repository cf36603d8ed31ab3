import numpy as np
import pytest
import torch
from PIL import Image

from consort.data.registry import load_dataset
from consort.domains.images.kvasir import CLASSES, kvasir
from consort.errors import Failure, UsageError


@pytest.fixture
def published(tmp_path):
    for number, name in enumerate(CLASSES):
        folder = tmp_path / "kvasir-dataset-v2" / name
        folder.mkdir(parents=True)
        for copy in range(2):
            shade = np.full((57, 72, 3), (20 * number, 100, 10 * copy), np.uint8)
            Image.fromarray(shade).save(folder / f"{copy}.jpg", quality=95)
    return tmp_path


def test_the_published_layout(published):
    dataset = kvasir(published)
    assert dataset.labels.tolist() == [number for number in range(8) for _ in range(2)]
    assert dataset.tasks["classify"].classes == 8
    assert dataset.examples.inputs.shape == (16, 3, 64, 64)
    assert dataset.examples.inputs.dtype == torch.uint8
    red = dataset.examples.inputs[:, 0].float().mean(dim=(1, 2))
    assert torch.allclose(red, torch.from_numpy(dataset.labels) * 20.0, atol=4)
    assert dataset.prepare(dataset.examples.inputs).abs().max() <= 1


def test_the_side_is_an_option(published):
    assert load_dataset("kvasir", 0, published, size=24).examples.inputs.shape[2:] == (24, 24)
    with pytest.raises(UsageError, match="size = 0: input should be greater"):
        load_dataset("kvasir", 0, published, size=0)


def test_a_missing_class_is_named(published):
    for file in (published / "kvasir-dataset-v2/polyps").iterdir():
        file.unlink()
    with pytest.raises(UsageError, match=r"kvasir-dataset-v2/polyps contains no \*\.jpg"):
        kvasir(published)


def test_a_damaged_picture_is_named(published):
    (published / "kvasir-dataset-v2/esophagitis/1.jpg").write_bytes(b"no picture")
    with pytest.raises(Failure, match=r"esophagitis/1\.jpg is damaged"):
        kvasir(published)
