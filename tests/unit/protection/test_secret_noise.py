"""Noise from the operating system: normal, fresh, and quick enough."""

from __future__ import annotations

import os
import time

import numpy as np
import pytest
import torch
from scipy import stats

from consort.protection import secret_noise
from consort.protection.secret_noise import Secret


def test_numbers_are_normal_and_independent():
    found = Secret().normal((300_000,), torch.float32).numpy()
    assert stats.kstest(found, "norm").pvalue > 1e-6
    assert np.mean(found**4) == pytest.approx(3.0, abs=0.1)
    for lag in (1, 2, 7, secret_noise._CHUNK // 2, secret_noise._CHUNK):
        assert abs(np.corrcoef(found[lag:], found[:-lag])[0, 1]) < 0.02


def test_shapes_are_those_asked_for_in_double_precision():
    for shape in ((), (0,), (3,), (2, 5), (secret_noise._CHUNK + 1,)):
        found = Secret().normal(shape, torch.float32)
        assert (tuple(found.shape), found.dtype) == (shape, torch.float64)


def test_a_seed_changes_nothing():
    found = []
    for _ in range(2):
        torch.manual_seed(0)
        np.random.seed(0)
        found.append(Secret().normal((1000,), torch.float32))
    assert not (found[0] == found[1]).any()


def test_the_smallest_and_largest_words_give_finite_numbers(monkeypatch):
    for byte in (b"\x00", b"\xff"):
        monkeypatch.setattr(os, "urandom", lambda count, byte=byte: byte * count)
        assert Secret().normal((8,), torch.float32).isfinite().all()
        assert 0 <= float(Secret().uniform(8).max()) < 1


def test_uniform_numbers_are_uniform():
    assert stats.kstest(Secret().uniform(100_000).numpy(), "uniform").pvalue > 1e-6


def test_a_million_numbers_take_well_under_a_second():
    start = time.process_time()
    Secret().normal((1_000_000,), torch.float32)
    assert time.process_time() - start < 1
