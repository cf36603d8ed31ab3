"""Data of any kind, divided among clients in one line."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
import torch
from torch.utils.data import TensorDataset

from consort import partition
from consort.data.dataset import Dataset
from consort.data.partition import Cut
from consort.data.partition import partition as divide
from consort.errors import UsageError
from consort.federation.federation import Federation
from consort.federation.member import Member
from consort.tasks import Classification

LABELS = torch.arange(200) % 4
DATA = TensorDataset(torch.arange(200.0)[:, None], LABELS)


@pytest.mark.parametrize(("by", "options"), [
    ("iid", {}), ("dirichlet", {"alpha": 0.5}), ("classes", {"classes_per_client": 2}),
    ("quantity", {"alpha": 1.0}),
])  # fmt: skip
def test_every_example_goes_to_one_client_and_one_split(by, options):
    parts = partition(DATA, 5, by, seed=2, **options)
    assert list(parts) == [f"client-{number}" for number in range(5)]
    held = torch.cat([p.tensor for splits in parts.values() for p in splits.parts]).flatten()
    assert sorted(held.tolist()) == list(range(200))
    assert sum(sum(counts.values()) for counts in parts.counts.values()) == 200


def test_the_same_seed_gives_what_a_recipe_gives():
    parts = partition(DATA, 4, "dirichlet", alpha=0.3, seed=7)
    shares = divide(Dataset.of(DATA), 4, Cut(by="dirichlet", alpha=0.3), 7)
    for splits, share in zip(parts.values(), shares, strict=True):
        assert splits.train.tensor.flatten().tolist() == share.train.tolist()
    other = partition(DATA, 4, "dirichlet", alpha=0.3, seed=8)
    assert other.counts != parts.counts


def test_a_cut_has_a_seed_of_its_own():
    dataset = Dataset.of(DATA)
    own = Cut(by="dirichlet", seed=5)
    one, other = (divide(dataset, 4, own, seed) for seed in (1, 2))
    plain = divide(dataset, 4, Cut(by="dirichlet"), 5)
    for a, b, c in zip(one, other, plain, strict=True):
        assert a.train.tolist() == b.train.tolist() == c.train.tolist()


def test_tasks_can_be_divided():
    targets = {"a": LABELS, "b": LABELS}
    parts = partition((torch.zeros(200, 1), targets), 4, "task")
    assert [list(splits.train.targets) for splits in parts.values()] == [["a"], ["b"]] * 2


def test_parts_become_clients():
    parts = partition(DATA, 3)
    members = {n: Member.of({"mod": Classification(4)}, "mlp", part) for n, part in parts.items()}
    assert Federation(members).client_ids == tuple(parts)


def test_the_picture_has_one_circle_per_client_and_class(tmp_path):
    parts = partition(DATA, 3, "classes", classes_per_client=2)
    parts.picture(tmp_path / "who.svg")
    root = ET.parse(tmp_path / "who.svg").getroot()
    circles = root.findall("{*}circle")
    assert len(circles) == 6
    assert circles[0][0].text.startswith("client-0, class ")
    assert len(root.findall("{*}text")) == 3 + len(
        {c for held in parts.counts.values() for c in held}
    )


def test_wrong_options_name_their_key():
    with pytest.raises(UsageError, match=r"unknown key partition\.alfa: 'alfa': did you mean 'al"):
        partition(DATA, 3, "dirichlet", alfa=1.0)
    with pytest.raises(UsageError, match=r"clients = 300 with min_examples = 10 need 3000"):
        partition(DATA, 300)
