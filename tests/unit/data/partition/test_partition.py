import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from consort.data.dataset import Dataset
from consort.data.examples import Examples
from consort.data.partition import Cut, fingerprint, partition
from consort.data.registry import load_dataset
from consort.errors import UsageError
from consort.tasks import Classification

LABELS = np.random.default_rng(0).permutation(np.arange(600) % 6)
DATASET = Dataset(
    name="numbers",
    examples=Examples(
        torch.zeros(600, 1), {"kind": torch.from_numpy(LABELS), "half": torch.zeros(600).long()}
    ),
    tasks={"kind": Classification(6), "half": Classification(2)},
    labels=LABELS,
    owners=np.arange(600) % 12,
    domains=np.arange(600) % 3,
)
CUTS = [
    Cut(by="iid"),
    Cut(by="dirichlet", alpha=1.0, min_examples=3),
    Cut(by="classes", classes_per_client=2),
    Cut(by="quantity", alpha=0.3, min_examples=3),
    Cut(by="natural"),
    Cut(by="domain"),
    Cut(by="task"),
]


def pieces(share):
    return share.train, share.validation, share.test


def everything(shares):
    return np.concatenate([piece for share in shares for piece in pieces(share)])


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(CUTS), st.integers(3, 12), st.integers(0, 2**40))
def test_every_cut(cut, clients, seed):
    shares = partition(DATASET, clients, cut, seed)
    assert len(shares) == clients
    for share in shares:
        assert all(len(piece) > 0 for piece in pieces(share))
        assert sum(map(len, pieces(share))) >= cut.min_examples
    groups = [shares[0::2], shares[1::2]] if cut.by == "task" else [shares]
    for group in groups:
        index = everything(group)
        assert len(np.unique(index)) == len(index)
        assert index.min() >= 0
        assert index.max() < 600
        if cut.by != "natural":
            assert len(index) == 600
    assert fingerprint(partition(DATASET, clients, cut, seed)) == fingerprint(shares)


@pytest.mark.parametrize("cut", [cut for cut in CUTS if cut.by != "natural"])
def test_another_seed_gives_another_partition(cut):
    prints = {fingerprint(partition(DATASET, 6, cut, seed)) for seed in range(3)}
    assert len(prints) == 3


def test_a_recipe_can_ask_for_balance():
    cuts = [Cut(by="dirichlet", alpha=0.3, min_examples=3, balanced=b) for b in (False, True)]
    free, balanced = (partition(DATASET, 6, cut, 0) for cut in cuts)
    assert fingerprint(free) != fingerprint(balanced) == "a8f210be8eba3575"
    assert len(everything(balanced)) == 600
    assert max(sum(map(len, pieces(share))) for share in balanced) < 200, "100 are fair"


def test_natural_clients_are_the_owners():
    shares = partition(DATASET, 12, Cut(by="natural"), 0)
    assert [set(DATASET.owners[everything([share])]) for share in shares] == (
        [{owner} for owner in range(12)]
    )


def test_tasks_of_clients():
    by_task = partition(DATASET, 5, Cut(by="task"), 0)
    assert [share.tasks for share in by_task] == [("kind",), ("half",)] * 2 + [("kind",)]
    assert {share.tasks for share in partition(DATASET, 3, Cut(), 0)} == {("kind", "half")}


def test_splits_keep_the_balance_of_labels():
    for share in partition(DATASET, 4, Cut(validation=0.2, test=0.2), 0):
        whole = np.bincount(LABELS[everything([share])], minlength=6)
        for piece, fraction in zip(pieces(share), (0.6, 0.2, 0.2), strict=True):
            counts = np.bincount(LABELS[piece], minlength=6)
            assert np.abs(counts - whole * fraction).max() <= 1


@pytest.mark.parametrize(
    ("cut", "clients", "message"),
    [
        (Cut(), 0, "clients = 0: at least one client is needed"),
        (Cut(), 61, "clients = 61 with min_examples = 10 need 610 .*'numbers' has 600: lower"),
        (Cut(by="quantity", min_examples=400), 2, "min_examples = 400 need 800 examples.*lower"),
        (Cut(by="dirichlet", alpha=0.01), 50, r"alpha = 0\.01 .*raise alpha"),
        (Cut(by="classes", classes_per_client=7), 3, "lower classes_per_client"),
        (Cut(by="natural"), 13, "12 owners: lower clients"),
        (Cut(by="natural", min_examples=51), 2, "client 0 would have 50 .*lower clients or min"),
        (Cut(by="domain"), 2, "3 domains: raise clients"),
        (Cut(by="task"), 1, "2 tasks: raise clients"),
        (Cut(by="task", min_examples=500), 3, "client 0 would have 300 examples, fewer than"),
    ],
)
def test_an_impossible_request_names_the_number_to_change(cut, clients, message):
    with pytest.raises(UsageError, match=message):
        partition(DATASET, clients, cut, 0)


@pytest.mark.parametrize(("by", "what"), [("natural", "owners"), ("domain", "domains")])
def test_data_without_owners_or_domains_say_so(by, what):
    dataset = load_dataset("synthetic_vectors", 0, None, examples=100)
    with pytest.raises(UsageError, match=f"'synthetic_vectors' has no {what}: choose another"):
        partition(dataset, 2, Cut(by=by), 0)


def test_clients_with_one_or_two_examples_only_train():
    for examples, clients in ((600, 600), (600, 300)):
        for share in partition(DATASET, clients, Cut(min_examples=1), 0):
            assert list(map(len, pieces(share))) == [examples // clients, 0, 0]


def test_a_partition_is_the_same_on_every_machine():
    assert {cut.by: fingerprint(partition(DATASET, 6, cut, 0)) for cut in CUTS} == {
        "iid": "77fa9eec3e725ced",
        "dirichlet": "b98e1262cdcf5ce4",
        "classes": "b0a7eddc27ee16e2",
        "quantity": "9e86d9ea92cdf596",
        "natural": "402207db9a3533d1",
        "domain": "7662c21e75b1e1ab",
        "task": "7f30ca778ba0b6ec",
    }


@pytest.mark.parametrize("by", ["iid", "dirichlet", "classes", "quantity"])
def test_ten_thousand_clients_take_about_a_second(by):
    dataset = load_dataset("synthetic_vectors", 0, None, examples=200_000, features=1)
    cut = Cut(by=by, min_examples=3, **({"alpha": 10.0} if by == "dirichlet" else {}))
    start = time.perf_counter()
    shares = partition(dataset, 10_000, cut, 0)
    fingerprint(shares)
    assert time.perf_counter() - start < 4
    assert len(shares) == 10_000
