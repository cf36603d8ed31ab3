from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from consort.domains.scenes.metrics.panoptic import (
    UNKNOWN,
    overlaps,
    panoptic_counts,
    panoptic_quality,
)

CODES = [0, 1000, 2001, 2002, 3001]
CLASSES = 4

few_codes = st.lists(st.sampled_from([*CODES, UNKNOWN]), min_size=24, max_size=24)


def quality(found, true):
    return panoptic_quality(panoptic_counts(torch.tensor(found), torch.tensor(true), CLASSES))


def by_sets(found, true):
    """The definition, with sets of pixels."""
    known = {pixel for pixel, code in enumerate(true) if code != UNKNOWN}

    def segments(codes):
        names = set(codes) - {UNKNOWN}
        return {name: {p for p, code in enumerate(codes) if code == name} for name in names}

    ours, theirs = segments(found), segments(true)
    qualities = []
    for kind in range(CLASSES):
        hits, hit = [], set()
        for one, mine in ours.items():
            for other, yours in theirs.items():
                iou = len(mine & yours) / len((mine & known) | yours)
                if one // 1000 == other // 1000 == kind and iou > 0.5:
                    hits.append(iou)
                    hit |= {("found", one), ("true", other)}
        wrong = [
            one
            for one, mine in ours.items()
            if one // 1000 == kind
            and ("found", one) not in hit
            and len(mine - known) <= len(mine) / 2
        ]
        missed = [o for o in theirs if o // 1000 == kind and ("true", o) not in hit]
        if hits or wrong or missed:
            qualities.append(sum(hits) / (len(hits) + len(wrong) / 2 + len(missed) / 2))
    return sum(qualities) / len(qualities) if qualities else None


@given(few_codes, few_codes)
def test_it_is_what_its_definition_says(found, true):
    assert quality(found, true).get("pq") == pytest.approx(by_sets(found, true))


@given(few_codes, st.integers(0, 12))
def test_what_is_nearly_right_is_what_its_definition_says(true, wrong):
    found = [CODES[place % 5] for place in range(wrong)] + true[wrong:]
    assert quality(found, true).get("pq") == pytest.approx(by_sets(found, true))


def test_by_hand():
    """One thing found with 3 of 4 pixels, one missed, one imagined; the stuff around is 7 of 10."""
    true = [2001] * 4 + [2002] * 2 + [0] * 6
    found = [2001] * 3 + [0] * 1 + [0] * 2 + [3001] * 1 + [0] * 5
    scores = quality(found, true)
    things, stuff = (3 / 4) / (1 + 1 / 2), 5 / 9
    assert scores["pq"] == pytest.approx((things + stuff + 0) / 3)
    assert scores["sq"] == pytest.approx((3 / 4 + stuff + 0) / 3)
    assert scores["rq"] == pytest.approx((1 / 1.5 + 1 + 0) / 3)


def test_pixels_that_nobody_knows_have_no_say_and_segments_there_are_no_false_alarms():
    true = [2001] * 4 + [UNKNOWN] * 6
    assert quality([2001] * 5 + [3001] * 5, true) == {"pq": 1.0, "sq": 1.0, "rq": 1.0}
    assert quality([3001] * 10, [UNKNOWN] * 10) == {}


def test_no_answer_is_a_miss_and_no_false_alarm():
    counts = panoptic_counts(torch.tensor([UNKNOWN] * 4), torch.tensor([1000] * 4), CLASSES)
    assert counts.tolist() == [[0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0], [0, 1, 0, 0]]


def test_numbers_of_things_do_not_matter():
    one, other = [2001, 2001, 2002, 2002], [2007, 2007, 2003, 2003]
    assert quality(one, other)["pq"] == 1


@given(few_codes, few_codes)
def test_overlaps_count_all_pixels(found, true):
    pairs = overlaps(torch.tensor(found), torch.tensor(true))
    assert int(pairs.pixels.sum()) == len(found)
    for row, ours in enumerate(pairs.found.tolist()):
        for column, theirs in enumerate(pairs.true.tolist()):
            both = sum(f == ours and t == theirs for f, t in zip(found, true, strict=True))
            either = sum(f == ours or t == theirs for f, t in zip(found, true, strict=True))
            assert float(pairs.iou[row, column]) == pytest.approx(both / either)
