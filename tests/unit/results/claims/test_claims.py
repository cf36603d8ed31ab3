"""Claims: what can be written, what it means, and when measurements decide it."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consort.errors import UsageError
from consort.results.claims import Claim
from consort.results.claims.comparison import EXACT_METRICS, Measured

ALGORITHMS = ["local", "fedavg", "fedavg_ft", "FedMH", "FedMH-Plus"]
METRICS = ["accuracy", "worst_accuracy", "eer", "bytes", "bytes_up"]
MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}


def judge(text, measured, algorithms=ALGORITHMS):
    by_seed = {
        key: dict(enumerate(values if isinstance(values, list) else [values]))
        for key, values in measured.items()
    }
    return Claim.parse(text, algorithms, METRICS).judge(Measured(by_seed))


def outcome(text, measured, algorithms=ALGORITHMS):
    return judge(text, measured, algorithms).outcome


def refusal(text, algorithms=ALGORITHMS):
    with pytest.raises(UsageError) as caught:
        Claim.parse(text, algorithms, METRICS)
    message = str(caught.value)
    assert f"`{text}`" in message
    assert "\n" not in message.replace(text, "")
    return message


# What a claim means


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("bytes(FedMH) < 100", "fails"),
        ("bytes(FedMH) <= 100", "holds"),
        ("bytes(FedMH) > 100", "fails"),
        ("bytes(FedMH) >= 100", "holds"),
        ("bytes(FedMH) < 101", "holds"),
        ("bytes(FedMH) <= 99", "fails"),
        ("bytes(FedMH) > 99", "holds"),
        ("bytes(FedMH) >= 101", "fails"),
        ("bytes(FedMHPlus) <= bytes(FedMH) / 8", "holds"),
        ("bytes(FedMHPlus) <= bytes(FedMH) / 9", "fails"),
        ("  100 <= bytes(FedMH)", "holds"),
    ],
)
def test_exact_quantities_decide_with_one_seed(text, expected):
    assert outcome(text, {("bytes", "FedMH"): 100, ("bytes", "FedMH-Plus"): 12}) == expected


@pytest.mark.parametrize(
    ("arithmetic", "value"),
    [
        ("2 + 3 * 4", 14),
        ("(2 + 3) * 4", 20),
        ("10 - 4 - 3", 3),
        ("10 - (4 - 3)", 9),
        ("16 / 4 / 2", 2),
        ("16 / (4 / 2)", 8),
        ("-2 * 3 + 10", 4),
        ("-(2 - 5)", 3),
        ("2 - -3", 5),
        ("1e1 + .5", Fraction(21, 2)),
    ],
)
def test_precedence(arithmetic, value):
    assert equals(arithmetic, value)


def equals(arithmetic, value):
    measured = {("bytes", "local"): float(value)}
    return all(
        outcome(f"bytes(local) {sign} {arithmetic}", measured) == "holds" for sign in ("<=", ">=")
    )


def numbers():
    return st.integers(0, 99).map(lambda number: (str(number), Fraction(number)))


def sums_and_products(parts):
    def joined(left, sign, right):
        a, b = left[1], right[1]
        return f"({left[0]} {sign} {right[0]})", a + b if sign == "+" else a * b

    negative = parts.map(lambda part: (f"-{part[0]}", -part[1]))
    return negative | st.builds(joined, parts, st.sampled_from("+*"), parts)


@settings(deadline=None, max_examples=50)
@given(st.recursive(numbers(), sums_and_products, max_leaves=5))
def test_arithmetic_is_exact(written):
    assert equals(*written)


def test_decimals_mean_what_they_say():
    measured = {("accuracy", "fedavg_ft"): [0.3, 0.8], ("accuracy", "fedavg"): [0.2, 0.7]}
    assert outcome("accuracy(fedavg_ft) >= accuracy(fedavg) + 0.1", measured) == "holds"
    assert outcome("accuracy(fedavg_ft) > accuracy(fedavg) + 0.1", measured) == "fails"


@pytest.mark.parametrize(
    "name", ["fedavg_ft", "FedAvgFT", "FEDAVG_FT", "FedAvg-FT", "fedavg - ft", "fed_avg_ft"]
)
def test_names_are_matched_without_case_and_separators(name):
    parsed = Claim.parse(f"accuracy({name}) > 0.5", ALGORITHMS, METRICS)
    assert (
        parsed.comparisons
        == Claim.parse("accuracy(fedavg_ft) > 0.5", ALGORITHMS, METRICS).comparisons
    )


# Each other


def eers(**series):
    return {("eer", name): values for name, values in series.items()}


def test_each_other_is_every_algorithm_not_named():
    parsed = Claim.parse("eer(FedMH) < eer(each other) - eer(local)", ALGORITHMS, METRICS)
    assert [c.rival for c in parsed.comparisons] == ["fedavg", "fedavg_ft", "FedMH-Plus"]


def test_each_other_alone_is_everyone():
    parsed = Claim.parse("accuracy(Each  Other) > 0.5", ALGORITHMS, METRICS)
    assert [c.rival for c in parsed.comparisons] == ALGORITHMS


def test_each_other_twice_on_one_side_is_the_same_rival():
    measured = {("bytes", "a"): 6, ("bytes", "b"): 2, ("bytes", "c"): 3}
    text = "bytes(a) <= bytes(each other) * bytes(each other) + 2"
    assert outcome(text, measured, ["a", "b", "c"]) == "holds"


@pytest.mark.parametrize("text", ["bytes(each other) < bytes(a)", "bytes(a) > bytes(each other)"])
def test_each_other_may_be_the_smaller_side(text):
    measured = {("bytes", "a"): 6, ("bytes", "b"): 2, ("bytes", "c"): 7}
    assert judge(text, measured, ["a", "b", "c"]).detail == "against c: margin -1 exactly"


def test_each_other_holds_only_against_all_and_names_the_weakest():
    measured = eers(a=[0.1, 0.11, 0.1], b=[0.3, 0.31, 0.3], c=[0.2, 0.21, 0.2])
    verdict = judge("eer(a) < eer(each other)", measured, ["a", "b", "c"])
    assert verdict.outcome == "holds"
    assert verdict.claim == "eer(a) < eer(each other)"
    assert verdict.detail == "against c: margin +0.1 exactly"


def test_each_other_fails_if_one_rival_wins_even_if_another_is_undecided():
    measured = eers(a=[0.2, 0.21, 0.2], b=[0.3, 0.1, 0.2], c=[0.1, 0.12, 0.1])
    verdict = judge("eer(a) < eer(each other)", measured, ["a", "b", "c"])
    assert verdict.outcome == "fails"
    assert verdict.detail.startswith("against c: margin -0.09667, 95 % interval [-0.111, -0.0823")


def test_each_other_is_undecided_if_one_rival_is():
    measured = eers(a=[0.2, 0.21, 0.2], b=[0.3, 0.1, 0.2], c=[0.4, 0.41, 0.4])
    verdict = judge("eer(a) < eer(each other)", measured, ["a", "b", "c"])
    assert verdict.outcome == "undecided"
    assert verdict.detail.startswith("against b: ")


def test_a_rival_without_results_keeps_each_other_undecided():
    measured = eers(a=[0.1, 0.11], b=[0.3, 0.31])
    verdict = judge("eer(a) < eer(each other)", measured, ["a", "b", "c"])
    assert verdict.outcome == "undecided"
    assert verdict.detail == "against c: no seed has all of eer(a), eer(c)"


# What the seeds decide


def test_interval_decides_and_is_told():
    measured = {("accuracy", "fedavg"): [0.5, 0.6, 0.7], ("accuracy", "local"): [0.4, 0.48, 0.62]}
    verdict = judge("accuracy(fedavg) > accuracy(local)", measured)
    # Margins 0.10, 0.12, 0.08: mean 0.1, s = 0.02, half width 4.30265 * 0.02 / sqrt(3) = 0.04968.
    assert verdict.outcome == "holds"
    assert verdict.detail == "margin +0.1, 95 % interval [+0.05032, +0.1497] over 3 seeds"
    assert outcome("accuracy(fedavg) > accuracy(local) + 0.05", measured) == "holds"
    assert outcome("accuracy(fedavg) > accuracy(local) + 0.051", measured) == "undecided"
    assert outcome("accuracy(fedavg) > accuracy(local) + 0.149", measured) == "undecided"
    assert outcome("accuracy(fedavg) > accuracy(local) + 0.15", measured) == "fails"


def test_only_seeds_that_all_share_are_paired():
    claim = Claim.parse("accuracy(fedavg) > accuracy(local)", ALGORITHMS, METRICS)
    measured = {
        ("accuracy", "fedavg"): {1: 0.5, 2: 0.6, 9: 0.0},
        ("accuracy", "local"): {7: 1.0, 2: 0.5, 1: 0.4},
    }
    verdict = claim.judge(Measured(measured))
    assert (verdict.outcome, verdict.detail) == ("holds", "margin +0.1 exactly")


def test_one_seed_of_a_noisy_metric_decides_nothing():
    verdict = judge("worst_accuracy(local) > 0.5", {("worst_accuracy", "local"): 0.9})
    assert verdict.outcome == "undecided"
    assert verdict.detail == "margin +0.4 with one seed; more seeds are needed to decide"


def test_one_noisy_metric_in_an_exact_claim_needs_seeds():
    measured = {("bytes", "local"): 10, ("accuracy", "local"): 0.5}
    assert outcome("bytes(local) > accuracy(local)", measured) == "undecided"


@pytest.mark.parametrize("metric", sorted(EXACT_METRICS))
def test_exact_metrics_are_exact_with_one_seed(metric):
    claim = Claim.parse(f"{metric}(local) <= 3", ["local"], [metric])
    assert claim.judge(Measured({(metric, "local"): {0: 3}})).outcome == "holds"
    assert claim.judge(Measured({(metric, "local"): {0: 4}})).outcome == "fails"


def test_bytes_that_differ_among_seeds_are_judged_by_their_interval():
    assert outcome("bytes(local) < 12", {("bytes", "local"): [9, 10, 14]}) == "undecided"


def test_a_tie_holds_for_or_equal_and_fails_for_strict():
    tie = {("accuracy", "fedavg"): [0.5, 0.7], ("accuracy", "local"): [0.5, 0.7]}
    expected = {"<": "fails", "<=": "holds", ">": "fails", ">=": "holds"}
    for sign, decision in expected.items():
        assert outcome(f"accuracy(fedavg) {sign} accuracy(local)", tie) == decision


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([0.5, math.nan], "accuracy(local) is nan with seed 1"),
        ([math.inf, 0.5], "accuracy(local) is inf with seed 0"),
        ([0.5, 0.0], "the margin is not a finite number with seed 1"),
        ([1e-300, 1e-300], "the margin is not a finite number with seed 0"),
        ([], "no seed has all of accuracy(local)"),
    ],
)
def test_what_is_not_a_number_decides_nothing(values, reason):
    verdict = judge("1e300 / accuracy(local) > 2", {("accuracy", "local"): values})
    assert (verdict.outcome, verdict.detail) == ("undecided", reason)


def test_nothing_measured_decides_nothing():
    verdict = judge("eer(FedMH) < eer(local)", {})
    assert verdict.outcome == "undecided"
    assert verdict.detail == "no seed has all of eer(FedMH), eer(local)"


# Properties

scores = st.integers(0, 1000).map(lambda thousandths: thousandths / 1000)
paired = st.lists(st.tuples(scores, scores), min_size=1, max_size=5)
signs = st.sampled_from(sorted(MIRRORED))


def accuracies(pairs):
    ours, theirs = map(list, zip(*pairs, strict=True))
    return {("accuracy", "fedavg"): ours, ("accuracy", "local"): theirs}


@settings(deadline=None, max_examples=100)
@given(paired, signs)
def test_swapping_the_sides_and_the_sign_changes_nothing(pairs, sign):
    measured = accuracies(pairs)
    one = judge(f"accuracy(fedavg) {sign} accuracy(local) + 0.1", measured)
    other = judge(f"accuracy(local) + 0.1 {MIRRORED[sign]} accuracy(fedavg)", measured)
    assert (one.outcome, one.detail) == (other.outcome, other.detail)


@settings(deadline=None, max_examples=100)
@given(paired, signs, st.floats(0.001, 1000))
def test_scaling_both_sides_changes_nothing(pairs, sign, factor):
    measured = accuracies(pairs)
    plain = outcome(f"accuracy(fedavg) {sign} accuracy(local)", measured)
    text = f"{factor} * accuracy(fedavg) {sign} accuracy(local) * {factor}"
    assert outcome(text, measured) == plain


@settings(deadline=None, max_examples=100)
@given(paired, signs)
def test_a_claim_holds_exactly_when_its_opposite_fails(pairs, sign):
    measured = accuracies(pairs)
    claim = outcome(f"accuracy(fedavg) {sign} accuracy(local)", measured)
    opposite = outcome(f"accuracy(fedavg) {OPPOSITE[sign]} accuracy(local)", measured)
    exchanged = {"holds": "fails", "fails": "holds", "undecided": "undecided"}
    assert opposite == exchanged[claim]


@settings(deadline=None, max_examples=50)
@given(st.dictionaries(st.sampled_from("bcd"), st.integers(0, 9), min_size=3), st.integers(0, 9))
def test_each_other_is_the_conjunction_of_its_parts(rivals, own):
    measured = {("bytes", name): value for name, value in {**rivals, "a": own}.items()}
    expected = "holds" if all(own <= value for value in rivals.values()) else "fails"
    verdict = judge("bytes(a) <= bytes(each other)", measured, list("abcd"))
    assert verdict.outcome == expected
    weakest = min(rivals.values()) - own
    assert verdict.detail.endswith(f"margin {weakest:+.4g} exactly")


# What cannot be written


@pytest.mark.parametrize(
    ("text", "word", "closest"),
    [
        ("eer(FedHM) < eer(local)", "FedHM", "FedMH"),
        ("eer(FedMH) < eer(locale)", "locale", "local"),
        ("err(FedMH) < 1", "err", "eer"),
        ("worstaccuracies(FedMH) < 1", "worstaccuracies", "worst_accuracy"),
        ("accuracy(FedAvgF) < 1", "FedAvgF", "fedavg_ft"),
        ("eer(FedMH) < eer(other)", "other", "each other"),
        ("eer(qqqqqqqqed) < 1", "qqqqqqqqed", "FedMH"),
        ("eer(-FedMH) < 1", "-FedMH", "FedMH"),
        ("eer('FedMH') < 1", "'FedMH'", "FedMH"),
        ("eer(local()) < 1", "local()", "local"),
    ],
)
def test_a_misspelt_word_is_told_with_the_closest(text, word, closest):
    assert f"`{word}`; did you mean `{closest}`?" in refusal(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "eer(FedMH)",
        "eer(FedMH) < ",
        "eer(FedMH) = eer(local)",
        "eer(FedMH) == eer(local)",
        "eer(FedMH) != eer(local)",
        "0 < eer(FedMH) < 1",
        "eer(FedMH) in eer(local)",
        "not eer(FedMH) < 1",
        "eer(FedMH) < 1 and eer(local) < 1",
        "eer(FedMH)\n< 1",
        "eer(FedMH local) < 1",
        "eer(FedMH) < (1",
        pytest.param("eer(FedMH) < 1\0", id="nul"),
        pytest.param("eer(FedMH) < " + "(" * 300 + "1" + ")" * 300, id="deep parentheses"),
        pytest.param("eer(FedMH) < " + "-" * 20000 + "1", id="many signs"),
        pytest.param("eer(FedMH) < " + "9" * 400, id="a huge number"),
    ],
)
def test_what_is_no_comparison_is_refused_with_an_example(text):
    assert "write two sides and one of <, <=, >, >= between them" in refusal(text)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("eer(FedMH) ** 2 < 1", "eer(FedMH) ** 2"),
        ("eer(FedMH) % 2 < 1", "eer(FedMH) % 2"),
        ("eer(FedMH) // 2 < 1", "eer(FedMH) // 2"),
        ("+eer(FedMH) < 1", "+eer(FedMH)"),
        ("eer(FedMH) < True", "True"),
        ("eer(FedMH) < 1j", "1j"),
        ("eer(FedMH) < 'one'", "'one'"),
        ("eer(FedMH) < 1e999", "1e309"),
        ("FedMH < 1", "FedMH"),
        ("eer(FedMH, local) < 1", "eer(FedMH, local)"),
        ("eer() < 1", "eer()"),
        ("eer(algorithm=FedMH) < 1", "eer(algorithm=FedMH)"),
        ("eer(*FedMH) < 1", None),
        ("FedMH.eer(local) < 1", "FedMH.eer(local)"),
        ("eer(FedMH) < [1][0]", "[1][0]"),
        ("eer(FedMH) < (x := 1)", "(x := 1)"),
        ("eer(FedMH) < (lambda: 1)", None),
        ("__import__('os').getcwd() < eer(FedMH)", "__import__('os').getcwd()"),
    ],
)
def test_python_beyond_the_grammar_is_refused(text, part):
    message = refusal(text)
    if part is not None:
        assert f"`{part}` is neither a number nor metric(algorithm)" in message


def test_a_claim_must_name_an_algorithm():
    assert "names no algorithm" in refusal("1 < 2")


def test_each_other_stands_on_one_side():
    assert "one side only" in refusal("eer(each other) < accuracy(each other)")


def test_each_other_needs_somebody():
    assert "needs an algorithm" in refusal("eer(FedMH) < eer(each other)", ["FedMH"])
