from __future__ import annotations

import pytest
import torch

from consort.aggregation import combination
from consort.aggregation.combination import combined, pieces
from consort.params import Params


def drawn(seed: int) -> Params:
    generator = torch.Generator().manual_seed(seed)
    shapes = {"a": (2, 3), "b": (7,), "c": ()}
    return Params({name: torch.randn(shape, generator=generator) for name, shape in shapes.items()})


@pytest.mark.parametrize("length", [1, 4, 100])
def test_pieces_put_together_are_the_vectors(monkeypatch, length):
    monkeypatch.setattr(combination, "_PIECE", length)
    vectors = [drawn(0), drawn(1), drawn(2)]
    found = {name: [] for name in drawn(0)}
    for name, number, rows in pieces(vectors):
        assert number == len(found[name])
        found[name].append(rows)
    for name, parts in found.items():
        expected = torch.stack([vector[name].reshape(-1) for vector in vectors])
        assert torch.equal(torch.cat(parts, 1), expected)


@pytest.mark.parametrize("length", [1, 4, 100])
def test_the_sum_is_that_of_all_vectors_times_their_factors(monkeypatch, length):
    monkeypatch.setattr(combination, "_PIECE", length)
    vectors = [drawn(i) for i in range(3)]
    factors = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64)
    total = combined(vectors, factors)
    assert total.shapes == vectors[0].shapes
    for name in "abc":
        expected = vectors[0][name] * 0.5 - vectors[1][name] + vectors[2][name] * 2
        torch.testing.assert_close(total[name], expected)


def test_vectors_in_any_order_of_memory_have_the_same_sum():
    plain = Params({"w": torch.arange(24.0).view(1, 2, 3, 4)})
    last = Params({"w": plain["w"].to(memory_format=torch.channels_last)})
    total = combined([plain, last], torch.tensor([1.0, 1.0]))
    assert torch.equal(total["w"], 2 * plain["w"])
