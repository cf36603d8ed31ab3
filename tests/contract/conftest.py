from __future__ import annotations

import pytest

from consort.models.registry import ENCODERS


@pytest.fixture(autouse=True)
def _rough_encoder(monkeypatch):
    """Makes `{"name": "rough"}` a model."""
    monkeypatch.setitem(ENCODERS, "rough", "tests.contract.helpers:Rough")
