from __future__ import annotations

import pytest

from consort.core.plugins import Registered, entries


@pytest.fixture(autouse=True)
def _rough_encoder(monkeypatch):
    """Makes `{"name": "rough"}` a model."""
    monkeypatch.setitem(entries("models"), "rough", Registered("tests.contract.helpers:Rough"))
