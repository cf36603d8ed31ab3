"""Epsilon: against Google's accountants, and counted step by step."""

from __future__ import annotations

import math
import time
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.helpers import tiny_federation

from consort.algorithms.fedavg import FedAvg
from consort.algorithms.fedavg_ft import FedAvgFT
from consort.algorithms.fedbabu import FedBABU
from consort.federation.site import Use
from consort.protection import dp_sgd
from consort.protection.accounting import earlier, for_one_example, spent
from consort.protection.dp import Privacy
from consort.run.run import Run
from consort.run.schedule import Schedule
from consort.training.local import LocalTraining

DELTA = 1e-5
STUDIES = [
    [Use("example", 1.0, 0.01, 1000)],
    [Use("example", 0.7, 0.2, 50), Use("example", 2.0, 0.05, 300)],
    [Use("example", 1.5, 0.5, 40), Use("client", 4.0, 1.0, 5), Use("example", 3.0, 1.0, 10)],
]


def google(uses: list[Use], exact: bool) -> float:
    """The same by `dp-accounting`: Rényi at our orders, or the privacy loss distribution."""
    dp = pytest.importorskip("dp_accounting", reason="pip install 'fedconsort[test]'")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from dp_accounting import pld, rdp

        found = (
            pld.PLDAccountant(value_discretization_interval=1e-3) if exact else rdp.RdpAccountant()
        )
        for use in uses:
            event = dp.GaussianDpEvent(use.noise)
            if use.share < 1:
                event = dp.PoissonSampledDpEvent(use.share, event)
            found.compose(event, use.count)
        return float(found.get_epsilon(DELTA))


@pytest.mark.parametrize("uses", STUDIES)
def test_uses_of_all_kinds_together_cost_what_another_accountant_says(uses):
    alike = [for_one_example(use) for use in uses]
    ours = spent(alike, DELTA)
    assert ours == pytest.approx(google(alike, exact=False), rel=0.02)
    exact = google(alike, exact=True)
    assert exact <= ours <= 1.3 * exact


def test_one_example_changes_an_update_by_twice_its_clip():
    assert for_one_example(Use("client", 3.0, 1.0, 2)) == Use("example", 1.5, 1.0, 2)
    assert for_one_example(Use("example", 3.0, 0.1, 2)) == Use("example", 3.0, 0.1, 2)


@settings(max_examples=25, deadline=None)
@given(
    st.floats(0, exclude_min=True, allow_infinity=False),
    st.floats(1e-9, 1.0),
    st.sampled_from([1, 10**9]),
)
def test_whatever_a_server_asks_for_the_answer_comes_soon_and_is_a_bound(noise, share, count):
    start = time.monotonic()
    found = spent([Use("example", noise, share, count)], DELTA)
    assert time.monotonic() - start < 10
    assert not math.isnan(found)
    assert 0 <= found <= spent([Use("example", noise, 1.0, count)], DELTA) * (1 + 1e-9)


def test_noise_that_hides_nothing_guarantees_nothing():
    assert spent([Use("client", 1e-300, 1.0, 1)], DELTA) == math.inf
    assert spent([Use("client", 1e300, 1.0, 1)], DELTA) < 1e-3


def test_a_run_of_version_0_1_goes_on_with_what_it_had_spent():
    state = {"privacy ledger": [[0.25, 3], [1.0, 2]]}
    expected = [Use("client", 2.0, 0.25, 3), Use("client", 2.0, 1.0, 2)]
    assert earlier(state, "client", 2.0) == expected
    assert earlier({}, "client", 2.0) == []


LOCAL = LocalTraining(lr=0.1, batch=16)


@pytest.mark.parametrize(("algorithm", "tuning"), [
    (FedAvg(LOCAL), 0), (FedAvg(LOCAL), 3), (FedAvgFT(LOCAL), 0), (FedBABU(LOCAL), 0),
])  # fmt: skip
def test_a_simulation_reports_the_steps_that_were_taken(algorithm, tuning, monkeypatch):
    """Counted where noise is drawn: once in every step, evaluations included."""
    taken, draw = [], dp_sgd.noise_like

    def counted(*arguments):
        taken.append(1)
        return draw(*arguments)

    monkeypatch.setattr(dp_sgd, "noise_like", counted)
    federation = tiny_federation(1).protected(Privacy("example", noise=1.3))
    run = Run(federation, algorithm, Schedule(3, tuning_epochs=tuning))
    run.go()
    (last,) = [r.value for r in run.history if (r.metric, r.round) == ("epsilon", 3)]
    assert last == spent([Use("example", 1.3, 16 / 30, len(taken))], DELTA)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_that_is_resumed_reports_the_same(workers, tmp_path):
    """An evaluation is charged once, also if it is repeated after a crash."""

    def run(folder, rounds):
        federation = tiny_federation(2).protected(Privacy("example", noise=1.3))
        schedule = Schedule(rounds, tuning_epochs=1, participation=0.5)
        made = Run(federation, FedAvg(LOCAL), schedule, folder=folder, workers=workers)
        made.go()
        return [row for row in made.history if row.metric == "epsilon"]

    straight = run(tmp_path / "straight", 3)
    run(tmp_path / "cut", 3)
    for path in (tmp_path / "cut").glob("round-000003.ckpt"):
        path.unlink()  # as if the machine had stopped just before it was written
    assert run(tmp_path / "cut", 3) == straight
