"""The stored machine is scikit-learn's, and views are what they say."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.ndimage import rotate

from consort.domains.signatures.enrolment import VIEWS, machine, views
from consort.domains.signatures.writer_dependent import kernel_to, trained


@pytest.mark.parametrize("count", [1, 3, 12])
def test_plain_numbers_score_as_the_protocol_does(count):
    generator = np.random.default_rng(count)
    references = generator.normal(1, 1, (count, 9))
    background = generator.normal(0, 2, (40, 9))
    background[:, 3] = references[:, 3] = 5.0  # a feature that never changes
    queries = generator.normal(0.5, 1.5, (25, 9))
    rows = np.concatenate([references, background])
    kernel, own = kernel_to(rows, 2.0**-11), np.arange(len(rows)) < count
    expected = trained(kernel(rows), own, 1.0)(kernel(queries))
    found = machine(references, background).scores(references, background, queries)
    np.testing.assert_allclose(found, expected, atol=2e-3)
    assert np.corrcoef(found, expected)[0, 1] > 0.999


def test_one_view_is_the_image_itself_and_more_are_near_it():
    images = torch.rand(2, 1, 24, 36)
    assert views(images, 1).equal(images[None])
    assert views(images, VIEWS).shape == (VIEWS, 2, 1, 24, 36)
    assert views(images, VIEWS)[0].equal(images)


def test_a_view_is_turned_by_three_degrees():
    y, x = np.mgrid[:60, :90]
    blob = np.exp(-((x - 70) ** 2 + (y - 30) ** 2) / 30).astype(np.float32)
    turned = views(torch.from_numpy(blob)[None, None], VIEWS)[1:3, 0, 0].numpy()
    expected = [rotate(blob, angle, reshape=False, order=1) for angle in (-3, 3)]
    differences = [[np.abs(one - other).max() for other in expected] for one in turned]
    assert min(differences[0]) < 0.05
    assert min(differences[1]) < 0.05
    assert np.argmin(differences[0]) != np.argmin(differences[1])
