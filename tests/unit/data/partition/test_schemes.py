"""Every scheme by itself: what it promises about the examples it deals out."""

from importlib import import_module

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consort.data.partition.classes import classes
from consort.data.partition.dirichlet import dirichlet
from consort.data.partition.domain import domain
from consort.data.partition.iid import iid
from consort.data.partition.natural import natural
from consort.data.partition.quantity import quantity
from consort.data.partition.task import task
from consort.errors import UsageError

LABELS = np.arange(1000) % 10
seeds = st.integers(0, 2**32)
few = settings(max_examples=30, deadline=None)


def rng(seed=0):
    return np.random.default_rng(seed)


def sizes(parts):
    return [len(part) for part in parts]


def assert_disjoint(parts, examples):
    everything = np.concatenate(parts)
    assert everything.dtype == np.int64
    assert len(np.unique(everything)) == len(everything)
    assert everything.min() >= 0
    assert everything.max() < examples


def assert_complete(parts, examples):
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(examples))


@few
@given(seed=seeds, clients=st.integers(1, 40), examples=st.integers(40, 300))
def test_iid_deals_out_everything_evenly(seed, clients, examples):
    parts = iid(examples, clients, rng(seed))
    assert_complete(parts, examples)
    assert max(sizes(parts)) - min(sizes(parts)) <= 1
    assert all(map(np.array_equal, parts, iid(examples, clients, rng(seed))))


@few
@given(seed=seeds, clients=st.integers(1, 20), alpha=st.floats(0.5, 100))
def test_dirichlet_deals_out_everything_and_leaves_nobody_short(seed, clients, alpha):
    parts = dirichlet(LABELS, clients, alpha, 5, rng(seed))
    assert_complete(parts, len(LABELS))
    assert min(sizes(parts)) >= 5
    assert all(map(np.array_equal, parts, dirichlet(LABELS, clients, alpha, 5, rng(seed))))


def test_dirichlet_skew_grows_as_alpha_falls():
    def skew(alpha):
        parts = dirichlet(LABELS, 10, alpha, 1, rng())
        return np.mean([np.bincount(LABELS[part]).max() / len(part) for part in parts])

    skews = [skew(alpha) for alpha in (1000, 10, 1, 0.1)]
    assert skews == sorted(skews)
    assert skews[0] < 0.15
    assert skews[-1] > 0.5


def test_dirichlet_shares_have_the_distributions_mean_and_variance():
    clients, alpha = 5, 0.7
    labels = np.zeros(10_000, dtype=np.int64)
    shares = np.array([sizes(dirichlet(labels, clients, alpha, 0, rng(s))) for s in range(400)])
    mean = 1 / clients
    variance = mean * (1 - mean) / (clients * alpha + 1)
    assert np.allclose((shares / 10_000).mean(0), mean, atol=0.04)
    assert (shares / 10_000).var() == pytest.approx(variance, rel=0.1)


def test_dirichlet_draws_again_when_somebody_is_left_short(monkeypatch):
    def succeeds(seed):
        try:
            return min(sizes(dirichlet(LABELS, 20, 0.2, 10, rng(seed)))) >= 10
        except UsageError:
            return False

    assert all(succeeds(seed) for seed in range(10))
    monkeypatch.setattr(import_module("consort.data.partition.dirichlet"), "ATTEMPTS", 1)
    assert not all(succeeds(seed) for seed in range(10))


def test_dirichlet_gives_up_and_says_what_to_change():
    with pytest.raises(UsageError, match=r"100 draws with alpha = 0\.01 some of 50 .*raise"):
        dirichlet(LABELS, 50, 0.01, 10, rng())


# Balanced

UNEVEN = np.repeat(np.arange(10), [300, 20, 150, 90, 10, 130, 60, 140, 40, 60])
some_labels = st.sampled_from([LABELS, UNEVEN, UNEVEN[::-1].copy()])
any_alpha = st.sampled_from([0.01, 0.1, 0.5, 1.0, 100.0])


def biggest_class(labels):
    return np.bincount(labels).max()


@few
@given(seed=seeds, labels=some_labels, clients=st.integers(1, 20), alpha=any_alpha)
def test_balanced_dirichlet_deals_out_everything_and_stops_at_a_fair_share(
    seed, labels, clients, alpha
):
    parts = dirichlet(labels, clients, alpha, 0, rng(seed), balanced=True)
    assert_complete(parts, len(labels))
    fair = len(labels) / clients
    assert max(sizes(parts)) < fair + biggest_class(labels)
    again = dirichlet(labels, clients, alpha, 0, rng(seed), balanced=True)
    assert all(map(np.array_equal, parts, again))
    for part in parts:
        known = np.bincount(labels[part], minlength=10)
        before_last = known[: np.flatnonzero(known)[-1]].sum() if len(part) else 0
        assert before_last < fair, "nothing was added to a fair share"


@few
@given(seed=seeds, clients=st.integers(1, 10), alpha=st.floats(0.1, 100), least=st.integers(1, 10))
def test_balanced_dirichlet_leaves_nobody_short(seed, clients, alpha, least):
    parts = dirichlet(LABELS, clients, alpha, least, rng(seed), balanced=True)
    assert_complete(parts, len(LABELS))
    assert min(sizes(parts)) >= least


@pytest.mark.parametrize("alpha", [0.1, 1.0])
def test_balance_makes_sizes_more_alike_and_keeps_the_skew(alpha):
    def spread_and_skew(balanced):
        cuts = [dirichlet(LABELS, 10, alpha, 1, rng(seed), balanced) for seed in range(30)]
        purity = [np.bincount(LABELS[part]).max() / len(part) for cut in cuts for part in cut]
        return np.mean([np.std(sizes(cut)) for cut in cuts]), np.mean(purity)

    (free_spread, free_skew), (spread, skew) = spread_and_skew(False), spread_and_skew(True)
    assert spread < free_spread
    assert skew == pytest.approx(free_skew, abs=0.15)


def test_balance_makes_no_difference_where_shares_are_fair_anyway():
    balanced, free = (dirichlet(LABELS, 10, 1000.0, 1, rng(), b) for b in (True, False))
    assert all(map(np.array_equal, balanced, free))


def struck_out_and_scaled_up(clients, alpha, generator):
    """The sizes of clients when all draw and those with a fair share are struck out."""
    counts = np.zeros(clients)
    for size in np.bincount(UNEVEN):
        shares = generator.dirichlet(np.full(clients, alpha)) * (counts < len(UNEVEN) / clients)
        counts += shares / shares.sum() * size
    return counts


def test_balanced_dirichlet_is_distributed_as_if_all_drew_and_some_were_struck_out():
    cuts = 600
    ours = [sizes(dirichlet(UNEVEN, 6, 0.5, 0, rng(seed), True)) for seed in range(cuts)]
    theirs = [struck_out_and_scaled_up(6, 0.5, rng(seed + cuts)) for seed in range(cuts)]
    ours, theirs = np.sort(ours), np.sort(theirs)
    error = np.sqrt((ours.var(0) + theirs.var(0)) / cuts)
    assert (np.abs(ours.mean(0) - theirs.mean(0)) < 4 * error + 1).all()
    assert ours.std(0) == pytest.approx(theirs.std(0), rel=0.2)


def test_balanced_dirichlet_gives_up_too():
    with pytest.raises(UsageError, match=r"100 draws with alpha = 0\.01 some of 50 .*raise"):
        dirichlet(LABELS, 50, 0.01, 10, rng(), balanced=True)


# Classes


@few
@given(seed=seeds, clients=st.integers(1, 60), held=st.integers(1, 10))
def test_classes_gives_exactly_so_many_classes_to_everyone(seed, clients, held):
    parts = classes(LABELS, clients, held, rng(seed))
    assert_disjoint(parts, len(LABELS))
    assert [len(np.unique(LABELS[part])) for part in parts] == [held] * clients
    if clients * held >= 10:
        assert_complete(parts, len(LABELS))
    holders = np.bincount(np.concatenate([np.unique(LABELS[p]) for p in parts]), minlength=10)
    assert np.ptp(holders) <= 1
    assert all(map(np.array_equal, parts, classes(LABELS, clients, held, rng(seed))))


@pytest.mark.parametrize(("clients", "holders"), [(10, 1), (20, 2)])
def test_ten_of_a_hundred_classes_each(clients, holders):
    labels = np.arange(6000) % 100
    parts = classes(labels, clients, 10, rng())
    assert_complete(parts, 6000)
    counts = np.array([np.bincount(labels[part], minlength=100) for part in parts])
    assert ((counts > 0).sum(axis=1) == 10).all()
    assert ((counts > 0).sum(axis=0) == holders).all()
    assert set(counts[counts > 0]) == {60 // holders}


def test_classes_does_not_always_pair_the_same_ones():
    parts = classes(LABELS, 50, 2, rng())
    assert len({tuple(np.unique(LABELS[part])) for part in parts}) > 15


def test_classes_refuses_more_classes_than_there_are():
    with pytest.raises(UsageError, match=r"classes_per_client = 11, but there are 10 .*lower"):
        classes(LABELS, 5, 11, rng())


def test_classes_refuses_more_holders_than_examples():
    labels = np.array([0, 0, 0, 1, 1, 1, 1, 1])
    with pytest.raises(UsageError, match="class 0 has 3 examples for 5 clients: lower clients"):
        classes(labels, 5, 2, rng())


@few
@given(seed=seeds, clients=st.integers(1, 50), alpha=st.floats(0.01, 100), least=st.integers(1, 20))
def test_quantity_deals_out_everything_and_leaves_nobody_short(seed, clients, alpha, least):
    parts = quantity(1000, clients, alpha, least, rng(seed))
    assert_complete(parts, 1000)
    assert min(sizes(parts)) >= least
    assert all(map(np.array_equal, parts, quantity(1000, clients, alpha, least, rng(seed))))


def test_quantity_skew_grows_as_alpha_falls():
    spread = [np.std(sizes(quantity(1000, 20, alpha, 3, rng()))) for alpha in (1000, 10, 1, 0.1)]
    assert spread == sorted(spread)


def test_quantity_with_nothing_to_spare_is_even():
    assert sizes(quantity(100, 20, 0.1, 5, rng())) == [5] * 20


def test_natural_takes_the_owners_with_the_most_examples():
    owners = np.array([7, 3, 3, 9, 9, 9, 7, 5])
    assert [part.tolist() for part in natural(owners, 4)] == [[1, 2], [7], [0, 6], [3, 4, 5]]
    assert [part.tolist() for part in natural(owners, 2)] == [[1, 2], [3, 4, 5]]
    assert [part.tolist() for part in natural(owners, 1)] == [[3, 4, 5]]


def test_natural_refuses_more_clients_than_owners():
    with pytest.raises(UsageError, match="clients = 3, but the data have 2 owners: lower clients"):
        natural(np.array([0, 1, 1]), 3)


@few
@given(seed=seeds, clients=st.integers(3, 30))
def test_domain_gives_each_client_one_domain(seed, clients):
    domains = np.repeat([4, 6, 9], [100, 150, 200])
    parts = domain(domains, clients, rng(seed))
    assert_complete(parts, 450)
    assert [set(domains[part]) for part in parts] == [{[4, 6, 9][i % 3]} for i in range(clients)]
    for first in range(3):
        assert np.ptp(sizes(parts[first::3])) <= 1
    assert all(map(np.array_equal, parts, domain(domains, clients, rng(seed))))


def test_domain_refuses_fewer_clients_than_domains():
    with pytest.raises(UsageError, match="clients = 2, but there are 3 domains: raise clients"):
        domain(np.array([0, 1, 2]), 2, rng())


@few
@given(seed=seeds, clients=st.integers(2, 30), tasks=st.integers(1, 2))
def test_task_deals_everything_out_anew_for_each_task(seed, clients, tasks):
    parts = task(100, clients, tasks, rng(seed))
    for number in range(tasks):
        assert_complete(parts[number::tasks], 100)
    assert all(map(np.array_equal, parts, task(100, clients, tasks, rng(seed))))


def test_task_refuses_fewer_clients_than_tasks():
    with pytest.raises(UsageError, match="clients = 1, but there are 2 tasks: raise clients"):
        task(100, 1, 2, rng())
