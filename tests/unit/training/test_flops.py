"""What clients compute is counted exactly, on every engine, and counting changes nothing."""

from __future__ import annotations

import pytest
import torch
from tests.contract.helpers import MEASUREMENTS
from tests.helpers import tiny_federation
from tests.unit.results.test_result import run as run_read_back
from tests.unit.results.test_result import score
from torch import nn
from torch.nn import functional as F

from consort.algorithms.ditto import Ditto
from consort.algorithms.fedavg import FedAvg
from consort.core.row import Row
from consort.run.run import Run
from consort.run.schedule import Schedule
from consort.training.compute import Compute
from consort.training.flops import FlopCounter
from consort.training.local import LocalTraining

HIDDEN, HEAD = 8 * 16, 16 * 3
LOCAL = LocalTraining(batch=10)


def of_an_epoch(examples: int) -> int:
    """Forward and weights of both layers; the gradient of its inputs of the head alone."""
    return 2 * examples * (2 * (HIDDEN + HEAD) + HEAD)


def rows(algorithm, counting=True, **settings):
    cohort_step, workers = settings.get("cohort_step", False), settings.get("workers", 1)
    compute = Compute(count_flops=counting, cohort_step=cohort_step)
    federation = tiny_federation(3, compute=compute)
    history = Run(federation, algorithm, Schedule(2), workers=workers).go()
    return [row for row in history if row.metric not in MEASUREMENTS]


@pytest.mark.parametrize("settings", [{}, {"workers": 2}, {"cohort_step": True}])
def test_every_call_of_an_epoch_is_counted(settings):
    found = [row for row in rows(FedAvg(LOCAL), **settings) if row.metric == "flops"]
    expected = [(r, f"c{n}", of_an_epoch(30 + n)) for r in (1, 2) for n in range(3)]
    assert [(row.round, row.client, row.value) for row in found] == expected
    assert {row.part for row in found} == {"train"}


def test_a_method_that_trains_twice_computes_twice():
    found = [row.value for row in rows(Ditto(LOCAL)) if row.metric == "flops"]
    assert found == [2 * of_an_epoch(30 + n) for _ in (1, 2) for n in range(3)]


def test_counting_changes_nothing_else_and_is_off_by_default():
    counted, plain = (rows(Ditto(LOCAL), counting) for counting in (True, False))
    assert [row for row in counted if row.metric != "flops"] == plain
    assert not Compute().count_flops


def test_convolutions_are_counted_with_their_gradients():
    layer = nn.Conv2d(3, 5, 3, padding=1, bias=False)
    inputs = torch.randn(2, 3, 8, 8)
    with FlopCounter(True) as counter:
        layer(inputs).sum().backward()
    once = 2 * 2 * 5 * 8 * 8 * 3 * 3 * 3
    assert counter.flops == 2 * once  # forward, and the gradient of the weights


def test_attention_is_counted_with_its_gradients():
    query, key, value = (torch.randn(2, 3, 7, 16, requires_grad=True) for _ in range(3))
    with FlopCounter(True) as forward:
        found = F.scaled_dot_product_attention(query, key, value)
    with FlopCounter(True) as backward:
        found.sum().backward()
    product = 2 * 2 * 3 * 7 * 7 * 16
    assert forward.flops == 2 * product
    assert backward.flops == 5 * product  # the scores are computed once more


def test_a_counter_that_is_not_active_counts_nothing():
    with FlopCounter(False) as counter:
        torch.ones(3, 3) @ torch.ones(3, 3)
    assert counter.flops == 0


def test_the_total_is_a_value_if_it_was_counted(tmp_path):
    work = [Row(1, "flops", 5e9, client, part="train") for client in ("a", "a", "b")]
    result = run_read_back(tmp_path / "counted", [score(1, 0.5), *work])
    assert result.value("flops") == 15e9
    assert result.client_flops() == {"a": 10e9, "b": 5e9}
    assert "flops" not in result.noted
    assert "flops" not in run_read_back(tmp_path / "not", [score(1, 0.5)]).metric_names()
