from __future__ import annotations

import math
from collections import Counter

import pytest
import torch
from tests.contract.helpers import assert_same_outcome, finish
from tests.contract.test_resuming import PowerCut, PullsThePlug
from tests.helpers import tiny_federation

from consort.algorithms.fedavg import FedAvg
from consort.core.randomness import generator_for
from consort.core.row import Row
from consort.errors import UsageError
from consort.federation.participation import cohort
from consort.federation.selection import (
    Candidates,
    Oort,
    PowerOfChoice,
    Reports,
    Uniform,
    Weighted,
    select,
    selection_of,
    table_of,
)
from consort.run.run import Run
from consort.run.schedule import Schedule
from consort.training.local import LocalTraining

IDS = tuple(f"c{number}" for number in range(10))


def candidates(count=3, round_=1, seed=0, examples=None, losses=None, rounds=None):
    sizes = examples or dict.fromkeys(IDS, 10)
    return Candidates(
        ids=IDS,
        count=count,
        round=round_,
        generator=generator_for(seed, round_, "cohort"),
        examples=sizes.__getitem__,
        losses=losses or {},
        rounds=rounds or {},
    )


ALL = [Uniform(), Weighted(), PowerOfChoice(), Oort()]


@pytest.mark.parametrize("selection", ALL, ids=lambda s: type(s).__name__)
def test_as_many_as_wanted_are_selected_in_order_and_the_seed_decides(selection):
    known = {
        "losses": {c: float(n) for n, c in enumerate(IDS[:6])},
        "rounds": dict.fromkeys(IDS[:6], 1),
    }
    seen = set()
    for round_ in range(1, 40):
        first, again, other = (
            select(selection, candidates(3, round_, seed, **known)) for seed in (0, 0, 1)
        )
        assert len(first) == 3
        assert list(first) == sorted(set(first))
        assert first == again
        seen |= {first, other}
    assert len(seen) > 10


@pytest.mark.parametrize("selection", ALL, ids=lambda s: type(s).__name__)
@pytest.mark.parametrize("count", [1, 10])
def test_one_and_all(selection, count):
    losses, rounds = {"c0": 1.0}, {"c0": 1}
    assert len(select(selection, candidates(count, 2, losses=losses, rounds=rounds))) == count


def test_uniform_selection_is_the_usual_cohort_bit_for_bit():
    for round_ in range(1, 20):
        assert select(Uniform(), candidates(3, round_, 7)) == cohort(IDS, 0.3, 7, round_)


def test_more_examples_more_rounds():
    """One client in ten has half of all examples: it is drawn alone in half of the rounds."""
    sizes = dict.fromkeys(IDS, 1) | {"c4": 9}
    drawn = Counter(
        select(Weighted(), candidates(1, round_, examples=sizes))[0] for round_ in range(1, 2001)
    )
    assert abs(drawn["c4"] / 2000 - 0.5) < 0.04
    assert min(drawn[c] for c in IDS) > 50


def test_clients_without_examples_are_the_last_to_be_drawn():
    sizes = dict.fromkeys(IDS, 0) | {"c1": 5, "c7": 3}
    for round_ in range(1, 30):
        assert {"c1", "c7"} <= set(select(Weighted(), candidates(3, round_, examples=sizes)))


def test_of_all_candidates_those_with_the_largest_losses_are_taken():
    losses = {c: float(n) for n, c in enumerate(IDS)}
    everybody = PowerOfChoice(candidates=10.0)
    assert select(everybody, candidates(3, losses=losses)) == ("c7", "c8", "c9")
    del losses["c2"]  # what is not known is tried first
    assert select(everybody, candidates(3, losses=losses)) == ("c2", "c8", "c9")


def test_one_candidate_for_each_is_selection_by_examples():
    sizes = {c: n + 1 for n, c in enumerate(IDS)}
    losses = {c: float(n) for n, c in enumerate(IDS)}
    for round_ in range(1, 10):
        same = [candidates(3, round_, examples=sizes, losses=losses) for _ in range(2)]
        assert select(PowerOfChoice(1.0), same[0]) == select(Weighted(), same[1])


def test_before_the_first_evaluation_chance_decides():
    """No loss is known: nobody is preferred for a name."""
    drawn = Counter(
        select(PowerOfChoice(2.0), candidates(1, round_))[0] for round_ in range(1, 2001)
    )
    assert all(abs(drawn[client] / 2000 - 0.1) < 0.03 for client in IDS)


def test_the_power_of_two_choices_by_hand():
    """Of two random candidates the better is taken: client k wins against all that lose less."""
    losses = {c: float(n) for n, c in enumerate(IDS)}
    drawn = Counter(
        select(PowerOfChoice(2.0), candidates(1, round_, losses=losses))[0]
        for round_ in range(1, 3001)
    )
    for k, client in enumerate(IDS):
        assert abs(drawn[client] / 3000 - k / 45) < 0.03


def test_oort_explores_first_and_exploits_later():
    known = {"losses": dict.fromkeys(IDS[:5], 1.0), "rounds": dict.fromkeys(IDS[:5], 1)}
    new = {
        round_: len(set(select(Oort(), candidates(4, round_, **known))) - set(IDS[:5]))
        for round_ in (2, 200)
    }
    assert new == {2: 4, 200: 1}  # 0.88 and 0.2 of four


def test_oort_prefers_large_losses_and_many_examples():
    rounds, losses = dict.fromkeys(IDS, 1), dict.fromkeys(IDS, 0.1) | {"c3": 2.0, "c5": 1.9}
    sizes = dict.fromkeys(IDS, 10) | {"c8": 195}
    best = Oort(exploration=0.0, least=0.0)
    for round_ in range(2, 20):
        chosen = candidates(3, round_, examples=sizes, losses=losses, rounds=rounds)
        assert select(best, chosen) == ("c3", "c5", "c8")


def test_the_utility_of_oort_by_hand():
    sizes = dict.fromkeys(IDS, 10) | {"c1": 20}
    losses, rounds = {"c0": 1.0, "c1": 2.0}, {"c0": 1, "c1": 4}
    chosen = candidates(2, 5, examples=sizes, losses=losses, rounds=rounds)
    found = Oort().utility(chosen, ["c0", "c1"])
    expected = [10 / 40 + math.sqrt(0.1 * math.log(5)), 1 + math.sqrt(0.1 * math.log(5) / 4)]
    assert torch.allclose(torch.tensor(found), torch.tensor(expected))


def test_reports_are_the_last_validation_losses_averaged_over_tasks():
    reports = Reports()
    reports.add(
        [
            Row(1, "loss", 9.0, "a", "t", "validation", "global"),
            Row(1, "loss", 1.0, "a", "t", "test", "global"),
            Row(1, "loss", 2.0, "a", "t", "validation", "personal"),
            Row(1, "seconds", 2.0, "a", part="train"),
            Row(1, "seconds", 2.0),
            Row(2, "loss", 3.0, "a", "t", "validation", "global"),
            Row(2, "loss", 5.0, "a", "u", "validation", "global"),
            Row(3, "seconds", 2.0, "b", part="train"),
        ],
        "global",
    )
    assert reports.losses == {"a": 4.0}
    assert reports.rounds == {"a": 1, "b": 3}


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ("unifrom", "no selection 'unifrom': did you mean 'uniform'"),
        ({"name": "oort", "greed": 1}, "run.selection.greed"),
        ({"name": "power_of_choice", "candidates": 0.5}, "run.selection.candidates"),
        ({}, "no selection ''"),
    ],
)
def test_a_wrong_selection_is_refused(chosen, message):
    with pytest.raises(UsageError, match=message):
        Schedule(selection=chosen)


def test_names_tables_and_functions_are_selections():
    assert selection_of("weighted") == Weighted()
    assert selection_of({"name": "power_of_choice", "candidates": 3.0}) == PowerOfChoice(3.0)
    assert selection_of(len) is len
    assert selection_of(f"{__name__}:everybody") is everybody
    assert selection_of(None) is None
    assert table_of(PowerOfChoice(3.0)) == {"name": "power_of_choice", "candidates": 3.0}


def everybody(chosen):
    return chosen.ids


def test_losses_need_evaluations():
    with pytest.raises(UsageError, match=r"set run\.evaluate_every above 0"):
        Schedule(selection="oort", evaluate_every=0)
    Schedule(selection="weighted", evaluate_every=0)


@pytest.mark.parametrize(
    ("wrong", "message"), [(lambda _: [], "nobody"), (lambda _: ["x"], "unknown client 'x'")]
)
def test_nobody_and_strangers_cannot_be_selected(wrong, message):
    with pytest.raises(UsageError, match=message):
        select(wrong, candidates())


def run(folder, selection, **how):
    own = {key: how.pop(key) for key in ("workers", "observer") if key in how}
    folder.mkdir(exist_ok=True)
    schedule = Schedule(**{"rounds": 5, "participation": 0.5, "selection": selection} | how)
    return Run(tiny_federation(6), FedAvg(LocalTraining(lr=0.1)), schedule, folder=folder, **own)


def trained_in(outcome_of, round_):
    rows = [r for r in outcome_of.history if r.metric == "seconds" and r.round == round_]
    return {row.client for row in rows if row.client}


@pytest.mark.parametrize("selection", ["weighted", "power_of_choice", "oort"])
def test_runs_are_the_same_in_workers_and_after_a_power_cut(selection, tmp_path):
    straight = run(tmp_path / "straight", selection)
    expected = finish(straight)
    assert all(len(trained_in(straight, round_)) == 3 for round_ in range(1, 6))
    assert_same_outcome(finish(run(tmp_path / "workers", selection, workers=2)), expected)
    with pytest.raises(PowerCut):
        run(tmp_path / "cut", selection, observer=PullsThePlug(("answered", 4))).go()
    assert_same_outcome(finish(run(tmp_path / "cut", selection)), expected)


def test_losses_of_evaluations_decide_who_trains(tmp_path):
    """With all clients as candidates, those with the largest losses of the round before train."""
    watched = run(tmp_path, {"name": "power_of_choice", "candidates": 6.0})
    finish(watched)
    for round_ in range(2, 6):
        losses = {
            row.client: row.value
            for row in watched.history
            if (row.metric, row.split, row.round) == ("loss", "validation", round_ - 1)
        }
        largest = sorted(losses, key=losses.get)[-3:]
        assert trained_in(watched, round_) == set(largest)


def test_a_repeated_round_has_the_same_clients(tmp_path):
    first = run(tmp_path, "oort")
    first.go()
    again = run(tmp_path, "oort")
    asked = []

    class Listening:
        def __init__(self, engine):
            self.engine = engine

        def deliver(self, calls):
            asked.append({call.client for call in calls})
            yield from self.engine.deliver(calls)

    before = first.saved(1)
    again.once_more(5, before["server"], first.states(before), Listening)
    assert asked == [trained_in(first, 5)]


def test_drop_outs_and_selection_go_together(tmp_path):
    patchy = run(tmp_path / "patchy", "oort", dropout=0.4, rounds=6)
    outcome = finish(patchy)
    assert any(len(trained_in(patchy, round_)) < 3 for round_ in range(1, 7))
    assert_same_outcome(
        finish(run(tmp_path / "workers", "oort", dropout=0.4, rounds=6, workers=2)), outcome
    )


def test_another_selection_does_not_go_on_with_a_run(tmp_path):
    run(tmp_path, "oort", rounds=2).go()
    with pytest.raises(UsageError, match=r"another recipe\.run\.selection \(oort, now weighted\)"):
        run(tmp_path, "weighted", rounds=2).go()
