from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consort.federation.participation import cohort, happens, round_half_up

IDS = [f"c{i:02}" for i in range(20)]


@settings(max_examples=40, deadline=None)
@given(
    count=st.integers(1, 30),
    share=st.floats(0.001, 1.0),
    seed=st.integers(0, 1000),
    round_=st.integers(1, 100),
)
def test_a_cohort_is_a_share_of_the_clients_in_their_order(count, share, seed, round_):
    ids = [f"c{i:02}" for i in range(count)]
    drawn = cohort(ids, share, seed, round_)
    assert list(drawn) == sorted(set(drawn))
    assert set(drawn) <= set(ids)
    assert len(drawn) == max(1, round_half_up(share * count)) <= count
    assert drawn == cohort(ids, share, seed, round_)


@pytest.mark.parametrize(("share", "size"), [
    (1.0, 20), (0.5, 10), (0.1, 2), (0.125, 3), (0.12, 2), (0.01, 1), (0.97, 19), (0.975, 20),
])  # fmt: skip
def test_sizes_of_cohorts(share, size):
    assert len(cohort(IDS, share, 0, 1)) == size


def test_everybody_takes_part_in_full_participation():
    assert cohort(IDS, 1.0, 3, 8) == tuple(IDS)
    assert cohort(["only"], 0.1, 3, 8) == ("only",)


def test_cohorts_change_with_the_round_and_with_the_seed():
    assert len({cohort(IDS, 0.3, 0, round_) for round_ in range(10)}) == 10
    assert len({cohort(IDS, 0.3, seed, 1) for seed in range(10)}) == 10


def test_every_client_is_drawn_about_equally_often():
    rounds = 1500
    drawn = Counter(client for round_ in range(rounds) for client in cohort(IDS, 0.2, 5, round_))
    assert drawn.keys() == set(IDS)
    # Five standard deviations of a binomial with p = 0.2.
    assert all(abs(times - 0.2 * rounds) < 5 * (0.16 * rounds) ** 0.5 for times in drawn.values())


@pytest.mark.parametrize(("value", "rounded"), [
    (0.0, 0), (0.4, 0), (0.5, 1), (1.5, 2), (2.5, 3), (2.49, 2), (0.29 * 100, 29),
])  # fmt: skip
def test_halves_are_rounded_up(value, rounded):
    assert round_half_up(value) == rounded


def test_what_is_certain_always_happens_and_what_is_impossible_never():
    for round_ in range(300):
        assert happens(1.0, 0, round_, "c0", "dropout")
        assert not happens(0.0, 0, round_, "c0", "dropout")


@pytest.mark.parametrize("probability", [0.05, 0.3, 0.9])
def test_events_happen_as_often_as_they_should(probability):
    trials = 4000
    times = sum(happens(probability, 1, t // 20, IDS[t % 20], "dropout") for t in range(trials))
    deviation = (trials * probability * (1 - probability)) ** 0.5
    assert abs(times - trials * probability) < 4 * deviation


def test_an_event_is_a_function_of_all_that_it_depends_on():
    def course(seed: int = 0, client: str = "c0", event: str = "dropout") -> list[bool]:
        return [happens(0.5, seed, round_, client, event) for round_ in range(64)]

    courses = [course(), course(seed=1), course(client="c1"), course(event="straggler")]
    assert course() == courses[0]
    assert len(set(map(tuple, courses))) == 4


def test_a_larger_probability_only_adds_events():
    for round_ in range(200):
        assert happens(0.6, 0, round_, "c0", "dropout") >= happens(0.3, 0, round_, "c0", "dropout")
