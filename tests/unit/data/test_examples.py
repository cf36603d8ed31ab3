"""Splits: sets of examples that are changed and joined together."""

from __future__ import annotations

import pytest
import torch

from consort.data.examples import Examples, Splits


def examples(*values: int) -> Examples:
    return Examples(torch.tensor(values).float()[:, None], {"tell": torch.tensor(values)})


def splits(start: int, **extra: Examples) -> Splits:
    return Splits(examples(start, start + 1), examples(start + 2), examples(start + 3), extra)


def values(part: Examples) -> list[int]:
    return part.targets["tell"].tolist()


def test_parts_are_all_sets_of_examples():
    assert [values(part) for part in splits(0, odd=examples(9)).parts] == [[0, 1], [2], [3], [9]]
    assert len(splits(0).parts) == 3


def test_a_change_is_made_to_every_set():
    found = splits(0, odd=examples(8, 9)).map(lambda part: part.rows(0, 1))
    assert [values(part) for part in found.parts] == [[0], [2], [3], [8]]
    assert list(found.extra) == ["odd"]


def test_sets_of_several_clients_are_joined_each_with_its_like():
    found = Splits.concatenate([splits(0, odd=examples(8)), splits(10, odd=examples(18))])
    assert [values(part) for part in found.parts] == [[0, 1, 10, 11], [2, 12], [3, 13], [8, 18]]
    assert list(found.extra) == ["odd"]


def test_clients_with_other_sets_are_not_joined():
    with pytest.raises(ValueError, match="shorter"):
        Splits.concatenate([splits(0, odd=examples(8)), splits(10)])
