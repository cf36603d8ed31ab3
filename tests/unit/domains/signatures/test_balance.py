import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from consort.domains.signatures.balance import balanced


def drawn(users, genuine, seed=0, repeated="smaller"):
    generator = torch.Generator().manual_seed(seed)
    return balanced(torch.tensor(users), torch.tensor(genuine), generator, repeated)


examples = st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=40)


@given(examples)
@settings(deadline=None, max_examples=60)
def test_every_user_has_equally_many_of_both_classes(pairs):
    index = drawn([user for user, _ in pairs], [int(genuine) for _, genuine in pairs]).tolist()
    assert index[: len(pairs)] == list(range(len(pairs)))
    for user in {user for user, _ in pairs}:
        before = [sum(pair == (user, kind) for pair in pairs) for kind in (True, False)]
        after = [sum(pairs[i] == (user, kind) for i in index) for kind in (True, False)]
        assert after == ([max(before)] * 2 if all(before) else before)


def test_repeats_are_drawn_with_replacement_from_the_smaller_class():
    index = drawn([5] * 42, [1, 1] + [0] * 40)
    extra = index[42:].tolist()
    assert len(extra) == 38
    assert set(extra) == {0, 1}


def test_as_many_can_be_drawn_from_the_larger_class_or_from_all():
    genuine = [1] * 10 + [0] * 40
    for repeated, expected in {"larger": {0}, "any": {0, 1}, "smaller": {1}}.items():
        extra = drawn([3] * 50, genuine, repeated=repeated)[50:].tolist()
        assert len(extra) == 30
        assert {genuine[i] for i in extra} == expected


def test_the_generator_alone_decides():
    users, genuine = [0] * 10 + [1] * 10, ([1] * 3 + [0] * 7) * 2
    torch.manual_seed(1)
    once = drawn(users, genuine)
    torch.manual_seed(2)
    assert torch.equal(drawn(users, genuine), once)
    assert not torch.equal(drawn(users, genuine, seed=1), once)


def test_nobody_is_balanced():
    empty = torch.zeros(0, dtype=torch.int64)
    assert len(balanced(empty, empty, torch.Generator())) == 0
