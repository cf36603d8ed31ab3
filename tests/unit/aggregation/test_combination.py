from __future__ import annotations

import pytest
import torch

from consort.aggregation import combination
from consort.aggregation.combination import Update, joined, pieces
from consort.params import Params

BEFORE = Params({"a": torch.tensor([1.0, 2.0]), "b": torch.tensor([[3.0]])})
AFTER = Params({"a": torch.tensor([2.0, 0.0]), "b": torch.tensor([[7.0]])})


def test_an_update_is_the_difference_of_the_names_that_came_back():
    update = Update(BEFORE, AFTER)
    assert Params(dict(update)).equals(AFTER - BEFORE)
    assert list(Update(BEFORE, AFTER.only("b"))) == ["b"]
    assert len(update) == 2


def drawn(seed: int) -> Params:
    generator = torch.Generator().manual_seed(seed)
    shapes = {"a": (2, 3), "b": (7,), "c": ()}
    return Params({name: torch.randn(shape, generator=generator) for name, shape in shapes.items()})


@pytest.mark.parametrize("length", [1, 4, 100])
def test_pieces_put_together_are_the_vectors(monkeypatch, length):
    monkeypatch.setattr(combination, "_PIECE", length)
    vectors = [Update(drawn(0), drawn(1)), drawn(2)]
    found = {name: [] for name in drawn(0)}
    for name, number, rows in pieces(vectors):
        assert number == len(found[name])
        found[name].append(rows.clone())
    for name, parts in found.items():
        expected = torch.stack([vector[name].reshape(-1) for vector in vectors])
        assert torch.equal(torch.cat(parts, 1), expected)


@pytest.mark.parametrize("length", [1, 4, 100])
def test_everybody_has_its_share_of_the_sum_added(monkeypatch, length):
    monkeypatch.setattr(combination, "_PIECE", length)
    updates = [Update(drawn(i), drawn(i + 3)) for i in range(3)]
    factors = [0.5, -1.0, 2.0]
    shares = [dict.fromkeys("abc", 0.0), {"a": 0.1, "b": 0.2, "c": 0.3}, dict.fromkeys("abc", 1.0)]
    total, models = joined(updates, factors, shares, [[0], [1, 2], [1, 2]])
    assert models[0].equals(updates[0].after)
    for name in "abc":
        moves = [update[name] for update in updates]
        expected = sum(move * factor for move, factor in zip(moves, factors, strict=True))
        torch.testing.assert_close(total[name], expected)
        for i in (1, 2):
            taken = updates[i].before[name] + (moves[1] + moves[2]) / 2
            torch.testing.assert_close(models[i][name], taken + shares[i][name] * expected)
