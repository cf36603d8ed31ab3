import numpy as np
import pytest
import torch
from PIL import Image

from consort.data.repeats import first_of_each
from consort.domains.images.chest_xray import CLASSES, chest_xray
from consort.errors import Failure, UsageError

XRAYS = np.random.default_rng(0).integers(0, 256, (8, 64, 64), dtype=np.uint8)


@pytest.fixture
def published(tmp_path):
    root = tmp_path / "COVID-19_Radiography_Dataset"
    for number, name in enumerate(CLASSES):
        for part in ("images", "masks"):
            (root / name / part).mkdir(parents=True)
        Image.fromarray(np.zeros((256, 256), np.uint8)).save(root / name / f"masks/{name}-1.png")
        for copy in range(2):
            picture = Image.fromarray(XRAYS[2 * number + copy]).resize((299, 299), Image.NEAREST)
            mode = "RGB" if name == "Viral Pneumonia" else "L"
            picture.convert(mode).save(root / name / f"images/{name}-{copy + 1}.png")
    return root


@pytest.fixture
def reduced(tmp_path):
    (tmp_path / "medical").mkdir()
    path = tmp_path / "medical/covid_radiography_64.npz"
    labels = np.array([0, 0, 1, 1, 2, 2, 3, 3], dtype=np.uint8)
    np.savez(path, x=XRAYS[[0, 1, 2, 1, 4, 5, 6, 7]], y=labels, classes=np.array(CLASSES))
    return path


def test_the_published_layout(published):
    dataset = chest_xray(published.parent)
    assert dataset.labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert dataset.tasks["classify"].classes == 4
    assert dataset.examples.inputs.shape == (8, 1, 64, 64)
    assert dataset.examples.inputs.dtype == torch.uint8
    error = dataset.examples.inputs[:, 0].float() - torch.from_numpy(XRAYS).float()
    assert error.abs().mean() < 30, "enlarged, saved and squeezed again"


def test_the_reduced_layout_without_its_repeat(reduced):
    dataset = chest_xray(reduced.parents[1])
    assert dataset.labels.tolist() == [0, 0, 1, 2, 2, 3, 3]
    assert np.array_equal(dataset.examples.inputs[:, 0], XRAYS[[0, 1, 2, 4, 5, 6, 7]])


@pytest.mark.parametrize("layout", ["published", "reduced"])
def test_the_side_is_an_option(layout, tmp_path, request):
    request.getfixturevalue(layout)
    assert chest_xray(tmp_path, size=32).examples.inputs.shape[1:] == (1, 32, 32)


def test_masks_do_not_count_as_pictures(published):
    for number in (1, 2):
        (published / f"Normal/images/Normal-{number}.png").unlink()
    with pytest.raises(UsageError, match=r"Normal/images contains no \*\.png"):
        chest_xray(published.parent)


def test_other_classes_are_refused(reduced):
    with np.load(reduced) as arrays:
        content = dict(arrays)
    content["classes"] = content["classes"][::-1]
    np.savez(reduced, **content)
    with pytest.raises(Failure, match=r"radiography_64\.npz must have the classes COVID"):
        chest_xray(reduced.parents[1])


def test_real_xrays(real_data):
    dataset = chest_xray(real_data)
    assert dataset.examples.inputs.shape[1:] == (1, 64, 64)
    assert np.bincount(dataset.labels).min() > 500
    assert first_of_each(dataset.examples.inputs.numpy()).all()
    if (real_data / "medical/covid_radiography_64.npz").is_file():
        assert np.bincount(dataset.labels).tolist() == [588, 600, 600, 600], "12 were repeats"


def test_no_real_xray_left_is_another_in_full_resolution(real_data):
    images = chest_xray(real_data).examples.inputs[:2400].flatten(1).float()
    images = torch.nn.functional.normalize(images - images.mean(dim=1, keepdim=True))
    assert (images @ images.T).fill_diagonal_(0).max() < 0.98
