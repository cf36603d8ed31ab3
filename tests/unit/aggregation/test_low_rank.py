from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from consort.aggregation.low_rank import FACTORS, compress, expand
from consort.core.params import Params
from consort.core.wire import check, decode, encode
from consort.errors import Refused


def diagonal(*sigma, rows=20, columns=12, seed=0):
    """A matrix with these singular values."""
    generator = torch.Generator().manual_seed(seed)
    left, right = (
        torch.linalg.qr(torch.randn(size, len(sigma), generator=generator, dtype=torch.float64))[0]
        for size in (rows, columns)
    )
    return ((left * torch.tensor(sigma, dtype=torch.float64)) @ right.T).float()


@pytest.mark.parametrize(
    ("energy", "rank"),
    [(0.01, 1), (0.63, 1), (0.65, 2), (0.95, 2), (0.97, 3), (0.985, 3), (0.9999, 4)],
)
def test_the_rank_is_the_smallest_with_the_energy(energy, rank):
    """Squares 64, 32, 3 and 1: the shares are 0.64, 0.96, 0.99 and 1."""
    matrix = diagonal(8, 32**0.5, 3**0.5, 1)
    short = compress(Params({"w": matrix}), energy)
    assert short["w" + FACTORS].shape == (rank, 20 + 12)
    found = expand(short, {"w": (20, 12)})["w"]
    lost = sum((32, 3, 1)[rank - 1 :])
    assert float((found - matrix).square().sum()) == pytest.approx(lost, abs=1e-3)


def test_what_would_be_no_shorter_goes_as_it_is():
    matrix = diagonal(5, 4, 3, rows=4, columns=12)
    params = Params({"w": matrix, "b": torch.arange(3.0), "s": torch.tensor(2.0)})
    assert compress(params, 1.0).equals(params)  # 3 (4 + 12) numbers in place of 48
    assert set(compress(params, 0.8)) == {"w" + FACTORS, "b", "s"}


def test_a_convolution_is_a_matrix_of_what_belongs_to_an_output():
    kernel = diagonal(9, 4, 0.1, rows=16, columns=27).view(16, 3, 3, 3)
    short = compress(Params({"k": kernel}), 0.99)
    assert short["k" + FACTORS].shape == (2, 16 + 27)
    found = expand(short, {"k": (16, 3, 3, 3)})["k"]
    assert found.shape == kernel.shape
    assert float((found - kernel).square().sum()) == pytest.approx(0.01, rel=0.01)


def test_zeros_stay_zeros():
    short = compress(Params({"w": torch.zeros(9, 9)}), 0.95)
    assert not expand(short, {"w": (9, 9)})["w"].any()
    assert short["w" + FACTORS].shape == (1, 18)


@settings(deadline=None, max_examples=25)
@given(
    rows=st.integers(2, 30),
    columns=st.integers(2, 30),
    energy=st.floats(0.05, 1.0),
    seed=st.integers(0, 99),
)
def test_it_keeps_the_energy_and_is_never_longer(rows, columns, energy, seed):
    matrix = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))
    short = compress(Params({"w": matrix}), energy)
    assert short.size <= matrix.numel()
    found = expand(short, {"w": (rows, columns)})["w"]
    total = float(matrix.square().sum())
    assert float(found.square().sum()) >= (energy - 1e-5) * total
    rank = len(short.get("w" + FACTORS, matrix.new_zeros(min(rows, columns))))
    left, sigma, right = np.linalg.svd(matrix.double().numpy(), full_matrices=False)
    if "w" + FACTORS in short:
        best = (left[:, :rank] * sigma[:rank]) @ right[:rank]
        assert float((found - torch.from_numpy(best)).abs().max()) < 1e-4


def test_factors_are_checked_on_arrival():
    shapes = {"encoder.w": (20, 12)}
    short = compress(Params({"encoder.w": diagonal(8, 4)}), 0.9)
    (name,) = short
    check(decode(encode(short)).items(), shapes)
    rows = short[name]
    for wrong, reason in [
        ({name: rows[:, 1:]}, "expected \\(2, 32\\)"),
        ({name: rows[None]}, "expected"),
        ({name: rows.sum()}, "expected"),
        ({name: rows * float("nan")}, "NaN"),
        ({name: rows.long()}, "floating"),
        ({"encoder.v" + FACTORS: rows}, "no parameter 'encoder.v/factors'"),
        ({"encoder.w": rows}, "expected \\(20, 12\\)"),
    ]:
        with pytest.raises(Refused, match=reason):
            check(Params(wrong).items(), shapes)
