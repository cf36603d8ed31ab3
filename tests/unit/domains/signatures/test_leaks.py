"""Nothing but the handwriting may tell genuine signatures from forgeries."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from consort.data.page import otsu, read_page
from consort.domains.signatures.loaders import cedar
from consort.domains.signatures.preprocess import ink_box, preprocess
from consort.domains.signatures.synthetic.signatures import synthetic_signatures


def auc(truths, values):
    """How well a number tells both classes apart, whichever way it points."""
    area = roc_auc_score(truths, values)
    return max(area, 1 - area)


def trivial_statistics(images):
    """What anyone can measure without looking at the handwriting."""
    ink = images.reshape(len(images), -1).astype(float)
    boxes = [ink_box(255 - image, 254) for image in images]
    return {
        "median": np.median(ink, axis=1),
        "mean": ink.mean(axis=1),
        "ink share": (ink > 0).mean(axis=1),
        "max": ink.max(axis=1),
        "aspect": [(c.stop - c.start) / (r.stop - r.start) for r, c, _ in boxes],
    }


def test_the_shade_of_the_paper_leaves_no_trace():
    dataset = synthetic_signatures(0, users=6, genuine=12, forged=12)
    truths = dataset.examples.targets["detect"].numpy()
    rng = np.random.default_rng(0)
    paper = np.where(truths, 240, 253) + rng.integers(-2, 3, len(truths))
    pages = 255 - dataset.examples.inputs[:, 0].numpy().astype(np.int64)
    pages = np.minimum(pages, paper[:, None, None]).astype(np.uint8)
    assert auc(truths, np.median(pages, axis=(1, 2))) == 1
    images = np.stack([preprocess(page, (64, 96), (64, 96)) for page in pages])
    found = {name: auc(truths, values) for name, values in trivial_statistics(images).items()}
    assert found.pop("median") == 0.5
    assert max(found.values()) < 0.65, found


def test_the_paper_of_real_cedar_pages_leaves_no_trace(real_data):
    folder = real_data / "signatures/cedar"
    if not folder.is_dir():
        pytest.skip("the reduced CEDAR is not there")
    users = 12
    dataset = cedar(real_data, size=(64, 96), only_users=(0, users))
    truths = dataset.examples.targets["detect"].numpy()
    files = [path for user in range(1, users + 1) for path in folder.glob(f"{user}/*.png")]
    shades = [np.median(read_page(path)) for path in files]
    assert auc([path.name.startswith("original") for path in files], shades) > 0.999
    statistics = trivial_statistics(dataset.examples.inputs[:, 0].numpy())
    found = {name: auc(truths, values) for name, values in statistics.items()}
    assert found.pop("median") == 0.5
    assert max(found.values()) < 0.65, found


def test_a_threshold_is_no_leak_either():
    """Ink is as dark as it is, whatever paper Otsu cut it from."""
    ink = np.full((20, 30), 60, dtype=np.uint8)
    pages = [np.pad(ink, 20, constant_values=paper) for paper in (230, 250)]
    assert otsu(pages[0]) != otsu(pages[1])
    assert np.array_equal(*(preprocess(page, (40, 60), (60, 90)) for page in pages))
