"""The claim that no task is worse than with another algorithm by more than a standard error."""

from __future__ import annotations

import math
from fractions import Fraction
from statistics import mean, variance

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.cli.command import consort, write_recipe
from tests.unit.report.test_gain import result

from consort.errors import UsageError
from consort.experiment.loading import recipe_of
from consort.results.claims import Claim
from consort.results.claims.comparison import Measured
from consort.results.claims.no_task_worse import EACH_TASK
from consort.results.comparison import judge as judge_runs
from consort.results.records import Record, Score

ALGORITHMS = ["alone", "ours", "other"]
TEXT = "each task(ours) >= each task(alone) - standard error"


def judge(tasks, text=TEXT):
    """By task and algorithm: a list of scores, one for every seed."""
    measured = {
        task: {(EACH_TASK, name): dict(enumerate(values)) for name, values in series.items()}
        for task, series in tasks.items()
    }
    return Claim.parse(text, ALGORITHMS, ["accuracy"]).judge(Measured({}, measured))


# Differences +2 and 0 in one task; in the other 0, -2, 0, -2: mean -1, standard error 1/sqrt(3).
GOOD = {"alone": [1.0, 1.0], "ours": [3.0, 1.0]}
BAD = {"alone": [2.0, 2.0, 2.0, 2.0], "ours": [2.0, 0.0, 2.0, 0.0]}


def test_it_holds_if_every_task_stays_within_one_standard_error():
    # Differences -2 and 0: mean -1, deviation sqrt(2), standard error exactly 1.
    edge = {"alone": [2.0, 1.0], "ours": [0.0, 1.0]}
    verdict = judge({"rooms depth": GOOD, "rooms segment": edge})
    assert (verdict.claim, verdict.outcome) == (TEXT, "holds")
    assert verdict.detail == "rooms segment: margin -1 with a standard error of 1 over 2 seeds"


def test_it_fails_if_one_task_does_not_and_names_it():
    verdict = judge({"rooms depth": GOOD, "rooms segment": BAD, "edges edges": GOOD})
    assert verdict.outcome == "fails"
    assert verdict.detail == (
        "rooms segment: margin -1 with a standard error of 0.5774 over 4 seeds"
    )


def test_the_worst_task_is_the_one_most_standard_errors_below():
    small_but_sure = {"alone": [0.50, 0.51, 0.49], "ours": [0.49, 0.50, 0.48]}
    assert judge({"a": BAD, "b": small_but_sure}).detail.startswith("b: margin -0.01 ")


def test_equal_scores_hold_and_a_constant_loss_fails():
    same = {"alone": [0.5, 0.6], "ours": [0.5, 0.6]}
    assert judge({"a": same}).outcome == "holds"
    assert judge({"a": same, "b": GOOD}).detail.startswith("a: margin +0 ")
    assert judge({"a": {"alone": [0.5, 0.75], "ours": [0.25, 0.5]}}).outcome == "fails"


@given(st.floats(1e-6, 1e3), st.integers(1, 12))
def test_a_loss_with_one_seed_only_is_one_standard_error(loss, others):
    scores = {"alone": [loss] + [0.0] * others, "ours": [0.0] * (1 + others)}
    assert judge({"a": scores}).outcome == "holds"
    scores["ours"] = [0.0] + [-loss] * others
    assert judge({"a": scores}).outcome == "fails"


def test_one_seed_decides_nothing():
    verdict = judge({"a": {"alone": [0.5], "ours": [0.9]}})
    assert verdict.outcome == "undecided"
    assert verdict.detail == "a: margin +0.4 with one seed; more seeds are needed to decide"


@pytest.mark.parametrize(("series", "reason"), [
    ({"ours": [1.0, 2.0]}, "b: no seed has all of each task(alone), each task(ours)"),
    ({"alone": [1.0, math.nan], "ours": [1.0, 2.0]}, "b: each task(alone) is nan with seed 1"),
])  # fmt: skip
def test_a_task_without_scores_leaves_it_undecided_unless_another_fails(series, reason):
    verdict = judge({"a": GOOD, "b": series})
    assert (verdict.outcome, verdict.detail) == ("undecided", reason)
    assert judge({"a": BAD, "b": series}).outcome == "fails"


def test_nothing_measured_decides_nothing():
    assert judge({}).outcome == "undecided"


def test_each_other_is_every_algorithm_not_named():
    text = "Each Task(ours) >= each_task(each other) - Standard  Error"
    worse = {"alone": [1.0, 1.0], "ours": [1.0, 1.5], "other": [2.0, 2.0]}
    verdict = judge({"a": worse}, text)
    assert verdict.outcome == "fails"
    assert verdict.detail.startswith("against other: a: margin -0.75 ")


@settings(deadline=None, max_examples=100)
@given(
    st.dictionaries(
        st.sampled_from("abc"),
        st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=2, max_size=5),
        min_size=1,
    )
)
def test_it_is_the_sentence_it_stands_for(pairs):
    tasks = {
        task: {"ours": [float(a) for a, _ in seeds], "alone": [float(b) for _, b in seeds]}
        for task, seeds in pairs.items()
    }
    differences = [[Fraction(a - b) for a, b in seeds] for seeds in pairs.values()]
    errors = [(mean(d), variance(d) / len(d)) for d in differences]  # squared, and so exact
    within = [mean >= 0 or mean**2 <= squared for mean, squared in errors]
    expected = "holds" if all(within) else "fails"
    assert judge(tasks).outcome == expected


# Against runs


def seeds_of(folder, algorithm, values):
    """Client a segments (higher is better), client b estimates depth (lower is better)."""
    return [
        result(folder, algorithm, seed, {"a": {"seg": seg}, "b": {"depth": depth}}).folder
        for seed, (seg, depth) in enumerate(values)
    ]


@pytest.mark.parametrize(("depths", "outcome"), [((1.8, 1.7), "holds"), ((2.3, 2.4), "fails")])
def test_lower_is_better_where_the_metric_says_so(tmp_path, depths, outcome):
    algorithms = {"alone": {"kind": "local_only"}, "ours": {"kind": "fedavg"}}
    table = {"clients": 2, "model": {"name": "mlp"}, "algorithms": algorithms, "claims": [TEXT]}
    recipe = recipe_of(table, "here")
    folders = seeds_of(tmp_path, "alone", [(0.5, 2.0), (0.5, 2.0)])
    folders += seeds_of(tmp_path, "ours", [(0.6, depths[0]), (0.6, depths[1])])
    (verdict,) = judge_runs(recipe.claims, list(recipe.algorithms), folders)
    assert verdict.outcome == outcome
    if outcome == "fails":
        assert verdict.detail == (
            "group of b/depth: margin -0.35 with a standard error of 0.05 over 2 seeds"
        )


def test_scores_say_whether_more_is_better(tmp_path):
    found = Record.of(result(tmp_path, "ours", 0, {"a": {"seg": 0.6, "depth": 2.0}})).tasks
    assert found == {"group of a/seg": Score(0.6, True), "group of a/depth": Score(2.0, False)}


# What cannot be written


@pytest.mark.parametrize(
    "text",
    [
        "each task(ours) > each task(alone) - standard error",
        "each task(ours) >= each task(alone)",
        "each task(ours) >= each task(alone) + standard error",
        "each task(ours) >= each task(alone) - 2 * standard error",
        "each task(ours) - standard error <= each task(alone)",
        "each task(ours) >= 0.5 - standard error",
        "each task(ours) + 1 >= each task(alone) - standard error",
        "accuracy(ours) >= accuracy(alone) - standard error",
        "accuracy(ours) < standard error",
        "each task(ours) > 0",
    ],
)
@pytest.mark.parametrize("metrics", [[], ["accuracy"]])
def test_other_forms_are_refused_with_the_right_one(text, metrics):
    with pytest.raises(UsageError) as caught:
        Claim.parse(text, ALGORITHMS, metrics)
    assert str(caught.value) == (
        f"claim `{text}`: `each task` and `standard error` stand only in a claim such as "
        '"each task(a) >= each task(b) - standard error"'
    )


def test_a_misspelt_algorithm_is_told():
    with pytest.raises(UsageError, match="no algorithm `oura`; did you mean `ours`"):
        Claim.parse("each task(oura) >= each task(alone) - standard error", ALGORITHMS)


def test_a_wrong_one_is_refused_before_the_first_run(tmp_path):
    claim = "each task(fedavg) > each task(ditto)"
    recipe = write_recipe(tmp_path, ("clients = 3", f'clients = 3\nclaims = ["{claim}"]'))
    out = tmp_path / "out"
    refused = consort("compare", recipe, "--out", out)
    assert refused.code == 2
    assert "stand only in a claim such as" in " ".join(refused.err.split())
    assert not out.exists()
