"""A client refuses a model that is built to copy its examples, and no other."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.helpers import tiny_federation

from consort.algorithms.fedavg import FedAvg
from consort.core.messages import Call
from consort.core.params import Params
from consort.engines.host import ClientHost
from consort.engines.states import StateStore
from consort.errors import Refused
from consort.protection.imprint import RefuseImprints, alike_rows, refuse_imprints


def imprint(rows: int, inputs: int, jitter: float = 0.0) -> torch.Tensor:
    """One measurement in every row, each at a scale of its own."""
    scales = torch.linspace(0.5, 3.0, rows)[:, None] * (-1) ** torch.arange(rows)[:, None]
    return scales * torch.randn(inputs) + jitter * torch.randn(rows, inputs)


@settings(max_examples=20)
@given(st.integers(8, 200), st.integers(8, 60), st.integers(0, 999))
def test_imprints_are_told_from_random_layers(rows, inputs, seed):
    torch.manual_seed(seed)
    assert alike_rows(imprint(rows, inputs)) == 1.0
    assert alike_rows(imprint(rows, inputs, 1e-4)) > 0.5
    assert alike_rows(torch.randn(rows, inputs)) < 0.5


def test_an_imprint_among_ordinary_rows_is_found():
    weight = torch.cat([torch.randn(40, 30), imprint(60, 30)])[torch.randperm(100)]
    assert alike_rows(weight) == pytest.approx(0.6)
    with pytest.raises(Refused, match=r"60% of the rows of encoder\.weight are one row"):
        refuse_imprints([("encoder.weight", weight)])


def test_zeros_biases_and_small_layers_pass():
    refuse_imprints([("a", torch.zeros(20, 20)), ("b", torch.ones(50)), ("c", torch.ones(20, 3))])


def test_a_client_refuses_the_model_and_says_why():
    federation = tiny_federation(1).protected(RefuseImprints())
    host = ClientHost(federation, FedAvg(), 0, 1, StateStore(None))
    model = federation.roster.shared()
    name = next(n for n, t in model.items() if t.shape == (16, 8))
    bad = model | {name: imprint(16, 8)}
    (fine,) = host.answer([Call("c0", "train", 1, 0, 0, {"model": model})])
    (refused,) = host.answer([Call("c0", "train", 1, 0, 0, {"model": Params(bad)})])
    assert fine.error is None
    assert "it is not trained" in str(refused.error)
