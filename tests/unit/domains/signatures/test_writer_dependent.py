from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from consort.domains.signatures.writer_dependent import (
    Signatures,
    WriterDependent,
    kernel_to,
    trained,
)
from consort.errors import Failure
from consort.metrics.biometric import equal_error_rate, equal_error_threshold

QUICK = WriterDependent(references=4, tests=3, repetitions=2)
MEASURED = {
    "eer", "far", "frr", "far_random", "precision", "recall", "auc", "eer_global", "auc_global",
    "tar_at_1pct", "users", "skipped",
}  # fmt: skip


def table(counts: dict[int, tuple[int, int]], features=None) -> Signatures:
    """So many genuine signatures and forgeries by user; features are row numbers if not given."""
    users = np.concatenate([np.full(sum(pair), user) for user, pair in counts.items()])
    genuine = np.concatenate([np.arange(sum(pair)) < pair[0] for pair in counts.values()])
    rows = np.arange(len(users), dtype=float)[:, None] if features is None else features
    return Signatures(rows, users.astype(int), genuine)


def clouds(
    users: int = 6, apart: float = 3.0, forged: float = 0.5, each: tuple[int, int] = (8, 5), seed=0
) -> Signatures:
    """Genuine signatures around a centre per user, forgeries around one that is a bit off."""
    generator = np.random.default_rng(seed)
    centres = generator.normal(0, apart, (users, 20))
    off = centres + generator.normal(0, forged, centres.shape)
    rows = [
        generator.normal(place, 1.0, (count, 20))
        for user in range(users)
        for place, count in zip((centres[user], off[user]), each, strict=True)
    ]
    return table(dict.fromkeys(range(users), each), np.concatenate(rows))


def plainly(protocol: WriterDependent, tested, enrolled, seed: int) -> dict[str, float]:
    """The protocol without any saving: scaling, kernel and machine anew for every user."""
    found = []
    for repetition in range(protocol.repetitions):
        drawn = protocol.draw(tested, enrolled, np.random.default_rng([seed, repetition]))
        genuine, skilled, wrong, areas = [], [], np.zeros(3), []
        others = 0
        for user, own in drawn.references.items():
            if not (len(drawn.genuine[user]) and len(drawn.skilled[user])):
                continue
            rest = np.concatenate([r for other, r in drawn.references.items() if other != user])
            truths = np.repeat([1, -1], [len(own), len(rest)])
            machine = make_pipeline(
                StandardScaler(with_mean=False),
                SVC(C=protocol.c, gamma=protocol.gamma, class_weight={1: len(rest) / len(own)}),
            ).fit(np.concatenate([own, rest]), truths)
            mine, forged = map(
                machine.decision_function, (drawn.genuine[user], drawn.skilled[user])
            )
            strangers = np.concatenate([r for o, r in drawn.genuine.items() if o != user])
            threshold = equal_error_threshold(mine, forged)
            accepted = machine.decision_function(strangers) >= threshold
            wrong += [sum(mine < threshold), sum(forged >= threshold), sum(accepted)]
            others += len(strangers)
            areas.append(roc_auc_score([1] * len(mine) + [0] * len(forged), [*mine, *forged]))
            genuine.extend(mine)
            skilled.extend(forged)
        frr, far, strange = wrong / [len(genuine), len(skilled), others]
        found.append([(far + frr) / 2, far, frr, strange, np.mean(areas),
                      equal_error_rate(genuine, skilled)])  # fmt: skip
    names = ("eer", "far", "frr", "far_random", "auc", "eer_global")
    return dict(zip(names, np.mean(found, axis=0), strict=True))


# The protocol


@pytest.mark.parametrize("apart", [0.3, 3.0])
@pytest.mark.parametrize("enrolled", [None, clouds(seed=1)])
def test_metrics_are_those_of_one_plain_machine_per_user(apart, enrolled):
    protocol = replace(QUICK, gamma=2.0**-5)
    tested = clouds(apart=apart)
    found = protocol.metrics(tested, enrolled, seed=7)
    expected = plainly(protocol, tested, enrolled, seed=7)
    assert {name: found[name] for name in expected} == pytest.approx(expected, abs=1e-9)
    assert 0 < expected["eer"] < 1
    assert found.keys() == MEASURED
    assert (found["users"], found["skipped"]) == (6, 0)


def test_scores_are_those_of_one_plain_machine_per_user():
    tested = clouds(users=4)
    drawn = QUICK.draw(tested, None, np.random.default_rng(3))
    found = QUICK.scores(tested, None, np.random.default_rng(3))
    truths = np.repeat([-1, -1, 1, -1], 4)
    machine = make_pipeline(
        StandardScaler(with_mean=False), SVC(C=1, gamma=2**-11, class_weight={1: 3})
    ).fit(np.concatenate(list(drawn.references.values())), truths)
    for scores, rows in ((found[2].genuine, drawn.genuine), (found[2].skilled, drawn.skilled)):
        np.testing.assert_allclose(scores, machine.decision_function(rows[2]), atol=1e-6)
    strangers = np.concatenate([drawn.genuine[user] for user in (0, 1, 3)])
    np.testing.assert_allclose(found[2].random, machine.decision_function(strangers), atol=1e-6)


@pytest.mark.parametrize("c", [1.0, 0.3])
def test_a_machine_has_the_bits_of_the_one_with_all_checks_and_is_silent(c, capfd):
    tested = clouds(users=4)
    kernel = kernel_to(tested.features, 2.0**-5)(tested.features)
    positive = (tested.users == 2) & tested.genuine
    weight = np.sum(~positive) / np.sum(positive)
    checked = SVC(C=c, kernel="precomputed", class_weight={1: weight}).fit(kernel, positive)
    queries = kernel[::2].copy()
    found = trained(kernel, positive, c)(queries)
    np.testing.assert_array_equal(found, checked.decision_function(queries))
    assert len(np.unique(np.sign(found))) == 2
    assert capfd.readouterr() == ("", "")


def test_the_published_settings_are_the_defaults():
    protocol = WriterDependent()
    assert (protocol.references, protocol.tests, protocol.repetitions) == (12, 10, 5)
    assert (protocol.c, protocol.gamma, protocol.forgeries) == (1, 1 / 2048, 0)
    drawn = protocol.draw(table({3: (24, 30), 5: (24, 30)}), None, np.random.default_rng(0))
    sizes = [[len(part[user]) for part in drawn] for user in (3, 5)]
    assert sizes == [[12, 10, 30], [12, 10, 30]]


COUNTS = st.dictionaries(
    st.integers(0, 30), st.tuples(st.integers(0, 30), st.integers(0, 9)), min_size=1, max_size=6
).filter(lambda counts: any(map(sum, counts.values())))


@given(COUNTS, st.integers(1, 13), st.integers(1, 11), st.integers(0, 4))
@settings(deadline=None, max_examples=60)
def test_draws_keep_users_and_roles_apart(counts, references, tests, forgeries):
    protocol = WriterDependent(references, tests, forgeries)
    tested = table(counts)
    drawn = protocol.draw(tested, None, np.random.default_rng(0))
    assert set(drawn.references) == {user for user, (own, _) in counts.items() if own}
    for user, known in drawn.references.items():
        own, forged = counts[user]
        rows = [part[user][:, 0].astype(int) for part in drawn]
        every = np.concatenate(rows)
        assert len(set(every)) == len(every)
        assert all(tested.users[every] == user)
        assert [tested.genuine[part].tolist() for part in rows] == [
            [kind] * len(part) for kind, part in zip((True, True, False), rows, strict=True)
        ]
        assert 1 <= len(known) <= references
        assert len(drawn.genuine[user]) == min(tests, own - len(known))
        assert len(drawn.skilled[user]) == min(forgeries or forged, forged)
        if own >= references + tests:
            assert (len(known), len(drawn.genuine[user])) == (references, tests)
        if own > 1 and own * references >= references + tests:
            assert len(drawn.genuine[user]) > 0


def test_enrolled_signatures_are_the_references_and_all_others_are_left_for_tests():
    tested = table({0: (3, 2), 1: (3, 0)})
    enrolled = table({0: (20, 9), 1: (2, 0), 2: (1, 0), 3: (0, 4)}, -1.0 - np.arange(36)[:, None])
    drawn = WriterDependent().draw(tested, enrolled, np.random.default_rng(0))
    assert {user: len(rows) for user, rows in drawn.references.items()} == {0: 12, 1: 2, 2: 1}
    assert {user: len(rows) for user, rows in drawn.genuine.items()} == {0: 3, 1: 3, 2: 0}
    assert all((rows < 0).all() for rows in drawn.references.values())
    assert all((rows >= 0).all() for rows in (*drawn.genuine.values(), *drawn.skilled.values()))


# Properties


def test_users_far_apart_and_forgeries_far_off_are_told_apart():
    found = replace(QUICK, gamma=0.01).metrics(clouds(apart=9, forged=9))
    assert [found[name] for name in ("eer", "far", "frr", "eer_global", "far_random")] == [0] * 5
    assert [found[n] for n in ("auc", "auc_global", "precision", "recall", "tar_at_1pct")] == [
        1
    ] * 5


def test_features_that_say_nothing_are_guesses():
    """Over eight data sets the standard error of every metric is about 0.012.

    A threshold that is the 7th highest of 6 + 8 scores is reached by a new one in 7 of 15 cases.
    """
    protocol = WriterDependent(8, 6, repetitions=1)
    data = [clouds(20, apart=0, forged=0, each=(14, 8), seed=seed) for seed in range(8)]
    found = [protocol.metrics(tested) for tested in data]
    expected = dict.fromkeys(("eer", "eer_global", "auc", "auc_global"), 0.5)
    for name, value in (expected | {"far_random": 7 / 15}).items():
        assert np.mean([metrics[name] for metrics in found]) == pytest.approx(value, abs=0.05)


def test_the_seed_decides_everything():
    tested = clouds(apart=0.5)
    first, again, other = (QUICK.metrics(tested, seed=seed) for seed in (1, 1, 2))
    assert first == again != other


def test_repetitions_differ_and_are_averaged():
    tested = clouds(apart=0.5)
    one, two = (replace(QUICK, repetitions=n).metrics(tested) for n in (1, 2))
    generators = [np.random.default_rng([0, repetition]) for repetition in (0, 1)]
    drawn = [QUICK.draw(tested, None, generator) for generator in generators]
    assert not np.array_equal(drawn[0].references[0], drawn[1].references[0])
    assert one["auc"] != two["auc"]


def test_units_of_features_and_numbers_of_users_do_not_matter():
    tested = clouds(apart=0.5)
    units = 2.0 ** np.arange(-10, 10)
    other = Signatures(tested.features * units, 10 * tested.users + 3, tested.genuine)
    assert QUICK.metrics(other) == pytest.approx(QUICK.metrics(tested))


# Too little to go by


def test_skipped_users_are_counted_and_still_teach():
    counts = {0: (6, 3), 1: (6, 3), 2: (6, 0), 3: (1, 3), 4: (0, 3)}
    rows = np.random.default_rng(0).normal(size=(31, 4))
    found = QUICK.metrics(table(counts, rows))
    assert (found["users"], found["skipped"]) == (2, 3)
    scores = QUICK.scores(table(counts, rows), None, np.random.default_rng(0))
    assert list(scores) == [0, 1]
    assert len(scores[0].random) == 3 + 3  # of users 1 and 2
    drawn = QUICK.draw(table(counts, rows), None, np.random.default_rng(0))
    assert list(drawn.references) == [0, 1, 2, 3]


@pytest.mark.parametrize(("counts", "users"), [
    ({5: (24, 24)}, 1),
    ({5: (0, 24)}, 1),
    ({0: (24, 0), 1: (24, 0)}, 2),
    ({0: (1, 5), 1: (1, 5)}, 2),
    ({0: (0, 5), 1: (9, 5)}, 2),
])  # fmt: skip
def test_where_nobody_can_be_judged_only_the_number_is_reported(counts, users):
    assert WriterDependent().metrics(table(counts)) == {"users": 0, "skipped": users}


def test_no_signatures_are_no_users():
    nothing = Signatures(np.empty((0, 0)), np.empty(0, int), np.empty(0, bool))
    assert QUICK.metrics(nothing) == {"users": 0, "skipped": 0}
    assert QUICK.metrics(nothing, clouds()) == {"users": 0, "skipped": 0}
    assert QUICK.metrics(clouds(), nothing) == {"users": 0, "skipped": 6}


def test_a_user_without_strangers_to_test_has_no_random_forgeries():
    found = QUICK.metrics(table({0: (6, 3), 1: (1, 0)}))
    assert found.keys() == MEASURED - {"far_random"}
    assert (found["users"], found["skipped"]) == (1, 1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_features_that_are_always_the_same_are_guesses_and_never_nan(dtype):
    tested = table(dict.fromkeys(range(3), (7, 4)), np.zeros((33, 5), dtype))
    found = QUICK.metrics(tested)
    assert found["auc"] == found["eer"] == found["eer_global"] == 0.5
    assert all(map(np.isfinite, found.values()))


@pytest.mark.parametrize("strange", [np.nan, np.inf])
def test_features_of_a_model_that_diverged_are_refused(strange):
    with pytest.raises(Failure, match=r"features are not finite.*lower learning rate"):
        table({0: (2, 0)}, np.array([[0.0], [strange]]))


def test_every_signature_needs_a_user_and_a_truth():
    with pytest.raises(ValueError, match="must have the same length"):
        Signatures(np.zeros((2, 3)), np.zeros(2, int), np.zeros(3, bool))


# As a table of a recipe


@pytest.mark.parametrize("options", [
    {"references": 0}, {"tests": 0}, {"forgeries": -1}, {"repetitions": 0}, {"c": 0.0},
    {"gamma": -1.0}, {"refs": 3},
])  # fmt: skip
def test_impossible_settings_are_refused(options):
    with pytest.raises(ValidationError):
        TypeAdapter(WriterDependent).validate_python(options)


def test_scikit_learn_is_imported_when_it_is_needed():
    code = (
        "import sys, consort.domains.signatures.writer_dependent; print('sklearn' in sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout == "False\n"


# Real signatures


def test_pixels_of_real_signatures_tell_more_than_noise():
    folder = os.environ.get("CONSORT_DATA")
    if not folder:
        pytest.skip("CONSORT_DATA is not set")
    from consort.domains.signatures.loaders import cedar

    data = cedar(Path(folder), size=(32, 48), only_users=(0, 8))
    pixels = data.examples.inputs.flatten(1).numpy() / np.float32(255)
    noise = np.random.default_rng(0).normal(size=pixels.shape)
    protocol = WriterDependent(repetitions=2)
    start = time.process_time()
    found, guessed = (
        protocol.metrics(Signatures(rows, data.labels, data.strata % 2 == 1))
        for rows in (pixels, noise)
    )
    assert time.process_time() - start < 10
    assert (found["users"], found["skipped"]) == (8, 0)
    assert found["eer"] < 0.3 < 0.4 < guessed["eer"] < 0.6
    assert found["far_random"] < 0.05
