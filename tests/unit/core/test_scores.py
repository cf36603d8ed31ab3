"""Scores of evaluations: numbers by model, split, task and metric, and nothing else."""

from __future__ import annotations

import math

import pytest
import torch

from consort.core.contract import Number, Whole
from consort.core.contract_groups import Optional
from consort.core.known import Form, Known
from consort.core.params import Params
from consort.core.scores import MEASURED, MOST_SCORES, check_scores
from consort.errors import Refused

KNOWN = Known(Form(Params({})), ("sign",), lambda: 20, measured=("verification",))


def scores(n=10, task="sign", split="test", model="global", **metrics):
    return {model: {split: {"n": n, "tasks": {task: metrics or {"accuracy": 0.5}}}}}


@pytest.mark.parametrize("content", [
    {},
    scores(),
    scores(task="verification", eer=0.1),
    scores(accuracy=math.nan, loss=math.inf),
    scores(curve={"0.1": 0.5, "0.2": 1}),
    scores(model="model of c1") | scores(model="tuned"),
    scores(n=0),
    scores() | {"epsilon": 3.5, "chosen_model": 2},
    {"global": {}},
    {"global": {"test": {"n": 3, "tasks": {}}}},
    {"global": {"test": {"n": 3, "tasks": {"sign": {}}}}},
], ids=str)  # fmt: skip
def test_honest_scores_are_accepted(content):
    check_scores(content, None, KNOWN)


@pytest.mark.parametrize("content", [
    *[scores(n=n) for n in (-1, 1.5, True, "1", None, '1,"client":"c0"', [1], 10**13, math.nan)],
    *[scores(accuracy=v) for v in ("0.9", None, [0.9], True, torch.tensor(0.9), 10**400, (1,))],
    *[scores(accuracy={"p": v}) for v in ("0.9", None, [0.9], True, {"q": 1})],
    *[scores(accuracy={part: 1}) for part in (1, "", "x" * 201, "a\nb", "\ud800")],
    *[scores(task=task) for task in ("other", 1, "", None)],
    *[scores(model=name) for name in (1, "", "x" * 201, "a\tb", "\x1b[2J")],
    *[scores(split=name) for name in (1, "", "x" * 201, "a\nb")],
    *[scores(**{name: 1.0}) for name in ("", "x" * 201, "a\nb")],
    *[{name: 1.0} for name in MEASURED],
    {"epsilon": "3"},
    {"epsilon": None},
    {"epsilon": [3]},
    {"epsilon": True},
    {"global": {"test": {"n": 3}}},
    {"global": {"test": {"n": 3, "tasks": {}, "client": "c0"}}},
    {"global": {"test": [3]}},
    {"global": {"test": {"n": 3, "tasks": [1]}}},
    {"global": {"test": {"n": 3, "tasks": {"sign": 0.5}}}},
    {"global": {"test": {"n": 3, "tasks": {"sign": [0.5]}}}},
    {"global": [1]},
    {"global": Params({"w": torch.zeros(1)})},
    {"global": torch.zeros(1)},
    {1: 1.0},
])  # fmt: skip
def test_other_scores_are_refused(content):
    with pytest.raises(Refused):
        check_scores(content, None, KNOWN)


def test_too_many_scores_are_refused():
    curve = {str(number): 0.5 for number in range(MOST_SCORES)}
    check_scores(scores(curve=curve), {}, KNOWN)
    with pytest.raises(Refused, match="more than"):
        check_scores(scores(curve=curve, accuracy=1.0), {}, KNOWN)


def test_declared_numbers_are_there_and_in_their_range_and_there_are_no_others():
    declared = {"chosen_model": Whole(0, 2), "gone": None, "epsilon": Optional(Number())}
    check_scores(scores() | {"chosen_model": 2}, declared, KNOWN)
    check_scores(scores() | {"chosen_model": 0, "epsilon": 1.5}, declared, KNOWN)
    right = {"chosen_model": 0}
    for wrong in (
        {},
        {"chosen_model": 3},
        {"chosen_model": 1.0},
        {"chosen_model": {}},
        right | {"attention": 0.5},
        right | {"gone": 0.5},
        right | {"epsilon": "high"},
    ):
        with pytest.raises(Refused):
            check_scores(scores() | wrong, declared, KNOWN)
