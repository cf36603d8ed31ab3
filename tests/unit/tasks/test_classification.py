from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from consort.tasks import Classification, Task


def logits_for(guesses: list[int], classes: int, sharpness: float = 2.0) -> Tensor:
    return sharpness * nn.functional.one_hot(torch.tensor(guesses), classes).float()


def metrics_of(guesses: list[int], labels: list[int], classes: int = 3) -> dict[str, float]:
    meter = Classification(classes).meter()
    meter.update(logits_for(guesses, classes), torch.tensor(labels))
    return meter.compute()


def test_it_is_a_task_reported_by_accuracy():
    task = Classification(3)
    assert isinstance(task, Task)
    assert (task.metric, task.higher_is_better) == ("accuracy", True)
    assert Classification(3) == task != Classification(4)
    assert hash(Classification(3)) == hash(task)


@pytest.mark.parametrize("classes", [1, 0, -2])
def test_fewer_than_two_classes_are_an_error(classes):
    with pytest.raises(ValueError, match=f"at least two classes, found {classes}"):
        Classification(classes)


def test_the_head_has_one_output_per_class():
    head = Classification(5).head(7)
    assert head(torch.zeros(2, 7)).shape == (2, 5)


def test_the_loss_is_the_mean_cross_entropy():
    output = torch.tensor([[0.0, math.log(3)], [0.0, 0.0]])
    loss = Classification(2).loss(output, torch.tensor([1, 0]))
    assert loss.item() == pytest.approx((math.log(4 / 3) + math.log(2)) / 2)


def test_accuracy_and_balanced_accuracy_by_hand():
    #          class 0: 3 of 4       class 1: 0 of 1   class 2: 1 of 2
    metrics = metrics_of([0, 0, 0, 1, 2, 2, 0], [0, 0, 0, 0, 1, 2, 2])
    assert metrics["accuracy"] == 4 / 7
    assert metrics["balanced_accuracy"] == pytest.approx((3 / 4 + 0 + 1 / 2) / 3)
    right, wrong = math.log(2 + math.exp(2)) - 2, math.log(2 + math.exp(2))
    assert metrics["loss"] == pytest.approx((4 * right + 3 * wrong) / 7)


def test_a_majority_guess_looks_good_only_unbalanced():
    metrics = metrics_of([0] * 10, [0] * 9 + [1], classes=2)
    assert (metrics["accuracy"], metrics["balanced_accuracy"]) == (0.9, 0.5)


def test_a_client_with_one_class_has_a_value():
    metrics = metrics_of([2, 2, 0, 1], [2, 2, 2, 2])
    assert metrics["accuracy"] == metrics["balanced_accuracy"] == 0.5
    assert all(map(math.isfinite, metrics.values()))


def test_one_example_is_enough():
    assert metrics_of([1], [1])["balanced_accuracy"] == 1.0
    assert metrics_of([1], [0])["balanced_accuracy"] == 0.0


def test_on_balanced_classes_both_accuracies_agree():
    metrics = metrics_of([0, 1, 1, 1, 2, 0], [0, 0, 1, 1, 2, 2])
    assert metrics["balanced_accuracy"] == pytest.approx(metrics["accuracy"])


@given(
    pairs=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=20),
    cuts=st.lists(st.integers(1, 19), max_size=3),
)
def test_batches_change_nothing(pairs, cuts):
    guesses, labels = map(list, zip(*pairs, strict=True))
    whole = metrics_of(guesses, labels, 4)
    meter = Classification(4).meter()
    edges = sorted({0, *(cut for cut in cuts if cut < len(pairs)), len(pairs)})
    for start, stop in pairwise(edges):
        meter.update(logits_for(guesses[start:stop], 4), torch.tensor(labels[start:stop]))
    assert meter.compute() == pytest.approx(whole)
    assert meter.compute() == meter.compute()


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30))
def test_accuracies_agree_with_counting(pairs):
    metrics = metrics_of([guess for guess, _ in pairs], [label for _, label in pairs], 4)
    recalls = []
    for label in {label for _, label in pairs}:
        guesses = [guess for guess, truth in pairs if truth == label]
        recalls.append(guesses.count(label) / len(guesses))
    assert metrics["accuracy"] == sum(guess == label for guess, label in pairs) / len(pairs)
    assert metrics["balanced_accuracy"] == pytest.approx(sum(recalls) / len(recalls))


def test_a_meter_keeps_no_graph_and_meters_are_apart():
    task = Classification(2)
    meter, other = task.meter(), task.meter()
    output = torch.zeros(3, 2, requires_grad=True)
    meter.update(output, torch.tensor([0, 0, 1]))
    other.update(output, torch.tensor([1, 1, 1]))
    assert meter.compute()["accuracy"] == pytest.approx(2 / 3)
    assert other.compute()["accuracy"] == 0.0
    assert isinstance(meter.compute()["loss"], float)
