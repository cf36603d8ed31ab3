from __future__ import annotations

from contextlib import redirect_stdout
from io import StringIO

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from consort.domains.scenes.metrics.average_precision import Detections, mean_average_precision
from consort.domains.scenes.metrics.keypoints import keypoint_similarity
from consort.domains.scenes.metrics.panoptic import UNKNOWN, overlaps

SIZE = 12
KINDS = (1, 2)
SIGMAS = (0.05, 0.1, 0.08)


def detections(*images, most=100):
    """Each image: scores, similarities, and shares that nobody knows."""
    found = Detections(most)
    for scores, similarity, *unknown in images:
        shares = torch.tensor(unknown[0]) if unknown else torch.zeros(len(scores))
        found.add(torch.tensor(scores), torch.tensor(similarity).view(len(scores), -1), shares)
    return found


def test_all_found_is_one_and_nothing_found_is_zero():
    right = detections(([0.3, 0.9], [[1.0, 0.0], [0.0, 1.0]]))
    assert mean_average_precision([right]) == {"ap": 1.0, "ap50": 1.0, "ap75": 1.0}
    nothing = Detections()
    nothing.add(torch.zeros(0), torch.zeros(0, 3), torch.zeros(0))
    assert mean_average_precision([nothing]) == {"ap": 0.0, "ap50": 0.0, "ap75": 0.0}


def test_where_nothing_is_there_is_no_score():
    assert mean_average_precision([detections(([0.5], [[]]))]) == {}
    assert mean_average_precision([]) == {}


def test_by_hand():
    """The first is right up to .75, the second wrong, the third right up to .55; two are there."""
    found = detections(([0.9, 0.8, 0.7], [[0.75, 0.0], [0.1, 0.2], [0.3, 0.55]]))
    values = found.average_precision()
    # Recall 0 to .5 at precision 1 (51 of 101 points), then up to 1 at precision 2 / 3.
    both, one = (51 + 50 * 2 / 3) / 101, 51 / 101
    assert values.tolist() == pytest.approx([both] * 2 + [one] * 4 + [0] * 4)


def test_one_truth_is_found_once():
    found = detections(([0.9, 0.8], [[1.0, 0.0], [0.9, 0.0]]))
    assert float(found.average_precision()[0]) == pytest.approx(51 / 101)


def test_what_is_found_where_nobody_knows_does_not_count():
    wrong = detections(([0.9, 0.8], [[0.0], [1.0]]))
    hidden = detections(([0.9, 0.8], [[0.0], [1.0]], [1.0, 0.0]))
    assert float(wrong.average_precision()[0]) == pytest.approx(0.5)
    assert float(hidden.average_precision()[0]) == 1


def test_only_so_many_of_an_image_count():
    found = detections(([0.9, 0.8], [[0.0], [1.0]]), most=1)
    assert float(found.average_precision()[0]) == 0


def in_coco(kind, truths, found, **params):
    """AP, AP50 and AP75 by the official program."""
    coco = pytest.importorskip("pycocotools.coco")
    evaluation = pytest.importorskip("pycocotools.cocoeval")
    with redirect_stdout(StringIO()):
        truth = coco.COCO()
        truth.dataset = {
            "info": {},
            "images": [{"id": image, "width": SIZE, "height": SIZE} for image in (1, 2, 3)],
            "categories": [{"id": number, "name": str(number)} for number in KINDS],
            "annotations": [{"id": i, **row} for i, row in enumerate(truths, start=1)],
        }
        truth.createIndex()
        judge = evaluation.COCOeval(truth, truth.loadRes(found), kind)
        for name, value in params.items():
            setattr(judge.params, name, value)
        judge.evaluate()
        judge.accumulate()
    precision = judge.eval["precision"][:, :, :, 0, -1]
    there = precision[:, :, precision.min((0, 1)) > -1]
    return [there.mean(), there[0].mean(), there[5].mean()]


def some_codes(rng):
    """Blocks of background (0), things of two kinds, and pixels that nobody knows."""
    blocks = rng.choice(
        [0, 1001, 1002, 2001, 2002, UNKNOWN], (4, 4), p=[0.3, 0.2, 0.1, 0.2, 0.1, 0.1]
    )
    return blocks.repeat(3, 0).repeat(3, 1)


@settings(max_examples=15)
@given(st.integers(0, 9999))
def test_masks_are_judged_as_in_coco(seed):
    mask = pytest.importorskip("pycocotools.mask")
    rng = np.random.default_rng(seed)

    def coded(where):
        return mask.encode(np.asfortranarray(where.astype(np.uint8)))

    parts = {kind: Detections() for kind in KINDS}
    truths, found = [], []
    for image in (1, 2, 3):
        true = some_codes(rng)
        guess = np.where(rng.random(true.shape) < 0.25, some_codes(rng), true)
        pairs = overlaps(torch.from_numpy(guess), torch.from_numpy(true))
        for kind in KINDS:
            own, theirs = pairs.found // 1000 == kind, pairs.true // 1000 == kind
            scores = torch.from_numpy(rng.permutation(50)[: int(own.sum())] / 50)
            parts[kind].add(scores, pairs.iou[own][:, theirs], pairs.unknown[own])
            about = {"image_id": image, "category_id": kind}
            rows = [(code, 0) for code in pairs.true[theirs].tolist()]
            for code, crowd in [*rows, (UNKNOWN, 1)] if (true == UNKNOWN).any() else rows:
                area = int((true == code).sum())
                truths.append(
                    {**about, "segmentation": coded(true == code), "area": area, "iscrowd": crowd}
                )
            for code, score in zip(pairs.found[own].tolist(), scores.tolist(), strict=True):
                found.append({**about, "segmentation": coded(guess == code), "score": score})
    ours = mean_average_precision(list(parts.values()))
    if found and ours:
        assert list(ours.values()) == pytest.approx(in_coco("segm", truths, found), abs=1e-9)


@settings(max_examples=15)
@given(st.integers(0, 9999))
def test_key_points_are_judged_as_in_coco(seed):
    rng = np.random.default_rng(seed)
    ours, truths, found = Detections(20), [], []
    for image in (1, 2, 3):
        about = {"image_id": image, "category_id": 1}
        figures = np.concatenate([rng.random((3, 3, 2)) * SIZE, rng.integers(0, 3, (3, 3, 1))], -1)
        figures = figures[(figures[..., 2] > 0).any(1)]
        area = rng.uniform(20, 80, len(figures))
        guess = figures[..., :2] + rng.normal(size=(len(figures), 3, 2)) * rng.random() * 2
        guess = np.concatenate([guess, rng.random((1, 3, 2)) * SIZE])
        scores = rng.permutation(50)[: len(guess)] / 50
        true = np.concatenate([figures, area[:, None, None].repeat(3, 1)], -1)
        similarity = keypoint_similarity(
            torch.from_numpy(guess), torch.from_numpy(true), torch.tensor(SIGMAS).double()
        )
        ours.add(torch.from_numpy(scores), similarity, torch.zeros(len(scores)))
        for figure, size in zip(figures, area, strict=True):
            known = int((figure[:, 2] > 0).sum())
            box = {"bbox": [0, 0, SIZE, SIZE], "area": size, "iscrowd": 0, "num_keypoints": known}
            truths.append({**about, **box, "keypoints": figure.flatten().tolist()})
        for figure, score in zip(guess, scores, strict=True):
            joints = np.concatenate([figure, np.ones((3, 1))], 1).flatten().tolist()
            found.append({**about, "keypoints": joints, "score": score})
    scores = mean_average_precision([ours])
    params = {"kpt_oks_sigmas": np.array(SIGMAS), "catIds": [1]}
    if scores:
        theirs = in_coco("keypoints", truths, found, **params)
        assert list(scores.values()) == pytest.approx(theirs, abs=1e-9)


def test_similarity_of_key_points_by_hand():
    true = torch.tensor([[[4.0, 4.0, 2, 50], [9.0, 2.0, 1, 50], [0.0, 0.0, 0, 0]]]).double()
    found = torch.tensor([[[4.0, 4.0], [9.0, 5.0], [7.0, 7.0]]]).double()
    near = np.exp(-9 / (2 * 50 * 0.2**2))
    sigmas = torch.tensor(SIGMAS).double()
    assert float(keypoint_similarity(found, true, sigmas)) == pytest.approx((1 + near) / 2)
