import json

import numpy as np
import pytest

from consort.domains.images.femnist import femnist
from consort.errors import Failure


def leaf(**writers):
    return json.dumps(
        {
            "users": list(writers),
            "num_samples": [len(labels) for labels in writers.values()],
            "user_data": {
                name: {"x": [[label / 61] * 784 for label in labels], "y": labels}
                for name, labels in writers.items()
            },
        }
    )


@pytest.fixture
def published(tmp_path):
    for part in ("train", "test"):
        (tmp_path / "femnist/data" / part).mkdir(parents=True)
    (tmp_path / "femnist/data/train/a.json").write_text(leaf(zoe=[61, 0, 7], ann=[3]))
    (tmp_path / "femnist/data/train/b.json").write_text(leaf(bob=[4, 4]))
    (tmp_path / "femnist/data/test/a.json").write_text(leaf(zoe=[9], ann=[10, 11]))
    return tmp_path


def test_writers_own_their_characters_in_both_parts(published):
    dataset = femnist(published)
    owned = {owner: sorted(dataset.labels[dataset.owners == owner]) for owner in range(3)}
    assert owned == {0: [3, 10, 11], 1: [4, 4], 2: [0, 7, 9, 61]}
    assert dataset.tasks["classify"].classes == 62
    assert dataset.examples.inputs.shape == (9, 1, 28, 28)
    expected = np.rint(dataset.labels / 61 * 255)
    assert dataset.examples.inputs[:, 0, 13, 13].tolist() == expected.tolist()


def test_the_reduced_layout(tmp_path):
    (tmp_path / "images").mkdir()
    images = np.random.default_rng(0).integers(0, 256, (3, 28, 28), dtype=np.uint8)
    labels, owners = np.array([9, 0, 4], dtype=np.uint8), np.array([1, 0, 1], dtype=np.uint8)
    np.savez(tmp_path / "images/femnist_digits_12clients.npz", x=images, y=labels, client=owners)
    dataset = femnist(tmp_path)
    assert np.array_equal(dataset.examples.inputs[:, 0], images)
    assert dataset.labels.tolist() == dataset.examples.targets["classify"].tolist() == [9, 0, 4]
    assert dataset.owners.tolist() == [1, 0, 1]
    assert dataset.tasks["classify"].classes == 10


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        '{"users": []}',
        '{"user_data": {"a": {"x": [[0.5, 0.5]], "y": [1]}}}',
        leaf(a=[1, 2]).replace('"y": [1, 2]', '"y": [1]'),
        leaf(a=[1]).replace('"y": [1]', '"y": [62]'),
        leaf(a=[61]).replace("1.0", "2.0"),
    ],
)
def test_a_damaged_file_is_named(published, content):
    (published / "femnist/data/train/b.json").write_text(content)
    with pytest.raises(Failure, match=r"b\.json is damaged: LEAF's user_data is expected"):
        femnist(published)


def test_real_digits(real_data):
    dataset = femnist(real_data)
    assert dataset.owners is not None
    assert len(np.unique(dataset.owners)) >= 12
    assert dataset.examples.inputs.float().mean() > 127, "dark ink on white"
