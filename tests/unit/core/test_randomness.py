from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from consort.core.randomness import derive, generator_for

purposes = st.tuples(st.integers(1, 100), st.sampled_from(["c0", "c1", "c10"]), st.text("abc"))


def test_the_seeds_of_a_purpose_never_change():
    assert derive(0) == 53_614_305_849_153_459
    assert derive(7, 3, "c1", "train", 0) == 66_602_602_557_752_682


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**40), a=purposes, b=purposes)
def test_a_purpose_has_one_seed_and_other_purposes_have_others(seed, a, b):
    assert (derive(seed, *a) == derive(seed, *b)) is (a == b)
    assert derive(seed, *a) != derive(seed + 1, *a)
    assert 0 <= derive(seed, *a) < 2**56


def test_the_parts_of_a_purpose_do_not_run_into_each_other():
    parts = [(1, 11, "c"), (11, 1, "c"), (1, "1c"), ("11", "c"), ("c", 1, 1), ("11c",), ()]
    assert len({derive(0, *purpose) for purpose in parts}) == len(parts)


def test_a_generator_is_new_each_time_and_apart_from_that_of_torch():
    state = torch.default_generator.get_state()
    first = torch.rand(5, generator=generator_for(1, 2, "c0", "train"))
    again = torch.rand(5, generator=generator_for(1, 2, "c0", "train"))
    other = torch.rand(5, generator=generator_for(1, 2, "c1", "train"))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.default_generator.get_state(), state)


def test_seeds_of_neighbouring_rounds_are_spread_evenly():
    draws = torch.tensor([derive(0, round_, "c0") / 2**56 for round_ in range(2000)])
    assert abs(draws.mean() - 0.5) < 0.03
    assert abs(draws.std() - 12**-0.5) < 0.02
    assert abs(torch.corrcoef(torch.stack([draws[1:], draws[:-1]]))[0, 1]) < 0.08
