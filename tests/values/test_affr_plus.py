"""AFFR+ against its formulas: smoothed relative gaps of the loss, and factors, not steps."""

from __future__ import annotations

import math

import pytest
from tests.values.by_hand import SIZES, assert_close, average, descend, initial, play, three_clients
from tests.values.test_affr import LOCAL, negative_loss

from consort.algorithms.affr_plus import AFFRPlus
from consort.algorithms.fedavg import FedAvg
from consort.core.wire import encode


def by_hand(federation, rounds, memory, zone):
    """The model and the weights, and every round's smoothed gaps."""
    model, data = initial(federation), [federation.data(c) for c in federation.client_ids]
    alpha, last, smooth, seen = [size / sum(SIZES) for size in SIZES], [], [], []
    for t in range(rounds):
        received = [negative_loss(model, part.validation) for part in data]
        trained = [descend(model, part.train, 0.2, 2) for part in data]
        if last:
            pairs = zip(last, received, strict=True)
            gaps = [(own - other) / -(own + other) for own, other in pairs]
            pairs = zip(smooth or gaps, gaps, strict=True)
            smooth = [memory * old + (1 - memory) * new for old, new in pairs]
            counted = [gap if abs(gap) * 10 >= zone else 0.0 for gap in smooth]
            seen.append(counted)
            alpha = multiplied(alpha, counted, (1 - t / rounds) * 0.8)
        last = [negative_loss(o, part.validation) for o, part in zip(trained, data, strict=True)]
        model = average(trained, alpha)
    return model, alpha, seen


def multiplied(alpha, gaps, step):
    raw = [share * math.exp(step * gap) for share, gap in zip(alpha, gaps, strict=True)]
    return [value / sum(raw) for value in raw]


@pytest.mark.parametrize(("memory", "zone"), [(0.5, 0.0), (0.9, 0.0), (0.5, 0.05)])
def test_rounds_by_hand(memory, zone, tmp_path):
    federation = three_clients()  # ten validation examples each
    algorithm = AFFRPlus(LOCAL, memory=memory, dead_zone=zone)
    outcome = play(algorithm, federation, tmp_path, rounds=5)
    model, alpha, seen = by_hand(federation, 5, memory, zone)
    assert_close(outcome.server.model, model)
    weights = outcome.server.weights.values()
    assert [weight / sum(weights) for weight in weights] == pytest.approx(alpha, abs=1e-5)
    noted = [row.value for row in outcome.rows if row.metric == "generalisation_gap"]
    assert noted == pytest.approx([gap for gaps in seen for gap in gaps], abs=1e-5)
    assert alpha != pytest.approx([size / sum(SIZES) for size in SIZES], abs=1e-3)


def test_without_a_step_every_bit_is_fedavgs(tmp_path):
    plus = play(AFFRPlus(LOCAL, step=0.0), three_clients(), tmp_path / "plus", rounds=3)
    plain = play(FedAvg(LOCAL), three_clients(), tmp_path / "plain", rounds=3)
    assert encode(plus.server.model) == encode(plain.server.model)


def test_gaps_in_the_dead_zone_leave_fedavg(tmp_path):
    algorithm = AFFRPlus(LOCAL, dead_zone=1e6)
    plus = play(algorithm, three_clients(), tmp_path / "plus", rounds=3)
    plain = play(FedAvg(LOCAL), three_clients(), tmp_path / "plain", rounds=3)
    assert encode(plus.server.model) == encode(plain.server.model)
    assert list(plus.server.weights.values()) == list(map(float, SIZES))
