from __future__ import annotations

import numpy as np
import pytest
import torch

from consort.data.partition import Cut, partition
from consort.data.registry import load_dataset
from consort.domains.scenes.tasks.dense import IGNORED
from consort.errors import Failure, UsageError

VIEWS, SIZE = 30, 8


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    normal = np.full((VIEWS, SIZE, SIZE, 3), 127, dtype=np.uint8)
    normal[:, :4] = (255, 128, 127)  # to the right
    depth = np.full((VIEWS, SIZE, SIZE), 1024, dtype=np.uint16)
    depth[:, 0] = 65535
    (tmp_path / "dense").mkdir()
    np.savez(
        tmp_path / "dense" / "taskonomy_96.npz",
        rgb=rng.integers(0, 256, (VIEWS, SIZE, SIZE, 3), dtype=np.uint8),
        normal=normal,
        depth=depth,
        seg=rng.integers(0, 16, (VIEWS, SIZE, SIZE), dtype=np.uint8),
        edge2d=np.zeros((VIEWS, SIZE, SIZE), dtype=np.uint8),
        point_id=np.repeat(np.arange(10), 3),
    )
    return tmp_path


def test_targets_have_their_units(folder):
    targets = load_dataset("taskonomy", 0, folder).examples.targets
    vectors = targets["normals"]
    torch.testing.assert_close(
        vectors[0, :, 0, 0].float(), torch.tensor([1.0, 0.0, 0.0]), atol=0.01, rtol=0
    )
    assert bool((vectors[:, :, 4:] == IGNORED).all())
    assert targets["depth"][0, 1, 0] == 2.0
    assert targets["depth"][0, 0, 0] >= 80
    assert targets["segment"].max() < 16
    assert not targets["edges"].any()


@pytest.mark.parametrize("cut", [Cut(min_examples=3), Cut(by="task", min_examples=1)])
def test_views_of_one_place_stay_in_one_split(cut, folder):
    dataset = load_dataset("taskonomy", 0, folder)
    clients = 3 if cut.by == "iid" else 4
    for share in partition(dataset, clients, cut, 0):
        splits = [set(dataset.units[part]) for part in (share.train, share.validation, share.test)]
        assert not splits[0] & splits[1]
        assert not splits[0] & splits[2]
        assert not splits[1] & splits[2]
        for part, places in zip((share.train, share.test), (splits[0], splits[2]), strict=True):
            assert len(part) == 3 * len(places) > 0


def test_clients_share_no_place(folder):
    dataset = load_dataset("taskonomy", 0, folder)
    held = [
        set(dataset.units[np.concatenate([share.train, share.validation, share.test])])
        for share in partition(dataset, 3, Cut(min_examples=3), 0)
    ]
    assert sum(map(len, held)) == len(set().union(*held)) == 10


def test_missing_and_damaged_files_are_named(tmp_path):
    with pytest.raises(UsageError, match=r"taskonomy_96.npz.*synthetic_scenes"):
        load_dataset("taskonomy", 0, tmp_path)
    (tmp_path / "dense").mkdir()
    np.savez(tmp_path / "dense" / "taskonomy_96.npz", rgb=np.zeros(3))
    with pytest.raises(Failure, match="damaged"):
        load_dataset("taskonomy", 0, tmp_path)
