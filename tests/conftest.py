"""What holds for every test: one thread, a fixed seed, properties tried on the same examples."""

from __future__ import annotations

import pytest
import torch
from hypothesis import settings

from consort.core.plugins import Registered, entries

settings.register_profile("consort", deadline=None, max_examples=30, derandomize=True)
settings.load_profile("consort")


@pytest.fixture(autouse=True)
def _one_thread_and_a_fixed_seed():
    torch.set_num_threads(1)
    torch.manual_seed(0)


@pytest.fixture
def normed_encoder(monkeypatch):
    """Makes `{"name": "normed"}` a model for one test: the smallest encoder with BatchNorm."""
    monkeypatch.setitem(entries("models"), "normed", Registered("tests.helpers:Normed"))
