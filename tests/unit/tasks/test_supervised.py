"""Tasks made of a loss and metrics that a user has."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from consort.algorithms.fedavg import FedAvg
from consort.errors import UsageError
from consort.federation.federation import Federation
from consort.federation.member import Member
from consort.run.run import Run
from consort.run.schedule import Schedule
from consort.tasks import Calibrated, Classification, Meter, Supervised, Task
from consort.training.local import LocalTraining

LOGITS = torch.tensor([[2.0, 0.0, 0.0], [0.0, 1.0, 3.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.5]])
LABELS = torch.tensor([0, 2, 0, 0])


def hits(output, target):
    return (output.argmax(1) == target).float().mean()


def measured(task, batches=((0, 3), (3, 4))):
    meter = task.meter()
    for start, end in batches:
        meter.update(LOGITS[start:end], LABELS[start:end])
    return meter.compute()


@pytest.mark.parametrize("loss", [F.cross_entropy, nn.CrossEntropyLoss(), "cross_entropy"])
def test_a_loss_and_metrics_are_a_task(loss):
    task = Supervised(loss, [hits], outputs=3)
    assert isinstance(task, Task)
    assert task.metric == "hits"
    assert task.higher_is_better
    assert task.loss(LOGITS, LABELS) == F.cross_entropy(LOGITS, LABELS)
    assert task.head(5)(torch.zeros(2, 5)).shape == (2, 3)
    found = measured(task)
    assert found["hits"] == 0.75
    assert found["loss"] == pytest.approx(float(F.cross_entropy(LOGITS, LABELS)))


def test_metrics_are_of_all_examples_and_not_means_of_batches():
    def largest(output, target):
        return output.max()

    assert measured(Supervised("cross_entropy", {"top": largest}, 3))["top"] == 3.0


def test_one_output_is_one_number_per_example():
    task = Supervised("mse_loss", outputs=1)
    assert task.head(4)(torch.zeros(6, 4)).shape == (6,)
    assert (task.metric, task.higher_is_better) == ("loss", False)


def test_metrics_of_torchmetrics_are_metrics_as_they_are():
    torchmetrics = pytest.importorskip("torchmetrics")
    f1 = torchmetrics.classification.MulticlassF1Score(num_classes=3, average="macro")
    error = torchmetrics.MeanSquaredError()
    task = Supervised("cross_entropy", {"f1": f1}, 3)
    assert task.higher_is_better
    assert not Supervised("mse_loss", [error], 1).higher_is_better
    assert Supervised("mse_loss", [error], 1).metric == "MeanSquaredError"
    f1.update(LOGITS, LABELS)
    expected = float(f1.compute())
    assert measured(task)["f1"] == pytest.approx(expected)
    assert measured(task, [(0, 1)])["f1"] != pytest.approx(expected)  # every meter starts anew
    several = torchmetrics.MetricCollection({"f1": f1, "same": f1.clone()})
    task = Supervised("cross_entropy", {"all": several}, 3, metric="all_f1")
    assert measured(task).keys() == {"loss", "all_f1", "all_same"}
    each = torchmetrics.classification.MulticlassF1Score(num_classes=3, average=None)
    with pytest.raises(UsageError) as caught:
        measured(Supervised("cross_entropy", {"f1": each}, 3))
    assert str(caught.value) == (
        "metric 'f1' returns 3 values where one number is expected: choose a mean, such as "
        "average = 'macro'"
    )


def test_a_base_gives_what_is_not_given():
    base = Classification(3)
    task = Supervised(F.multi_margin_loss, [hits], base=base)
    assert (task.metric, task.higher_is_better) == ("accuracy", True)
    assert task.loss(LOGITS, LABELS) == F.multi_margin_loss(LOGITS, LABELS)
    assert task.head(5)(torch.zeros(2, 5)).shape == (2, 3)
    found = measured(task)
    assert found["accuracy"] == found["hits"] == 0.75
    assert found["loss"] == pytest.approx(float(F.multi_margin_loss(LOGITS, LABELS)))
    assert task.classes == 3
    assert not isinstance(task.meter(), Calibrated)
    assert Supervised(base=base, metric="loss").higher_is_better is False


def test_a_base_that_is_calibrated_stays_so():
    class Threshold:
        level = 0.0

        def update(self, output, target):
            self.level = float(output.max())

        def calibrate(self, validation):
            self.level = validation.level

        def compute(self):
            return {"level": self.level}

    class Own(Classification):
        def meter(self) -> Meter:
            return Threshold()

    task = Supervised(metrics=[hits], metric="level", base=Own(3))
    validation, test = task.meter(), task.meter()
    validation.update(LOGITS, LABELS)
    test.update(LOGITS * 0, LABELS)
    assert isinstance(test, Calibrated)
    test.calibrate(validation)
    assert test.compute()["level"] == 3.0


def test_equal_tasks_are_equal():
    one, same = Supervised("mse_loss", [hits], 1), Supervised("mse_loss", [hits], 1)
    assert one == same
    assert hash(one) == hash(same)
    assert one != Supervised("mse_loss", [hits], 2) != 3
    assert repr(one) == "Supervised(mse_loss, metrics=['hits'], outputs=1)"


LOSSES = (
    "binary_cross_entropy, binary_cross_entropy_with_logits, cross_entropy, hinge_embedding_loss, "
    "huber_loss, kl_div, l1_loss, mse_loss, multi_margin_loss, multilabel_margin_loss, "
    "multilabel_soft_margin_loss, nll_loss, poisson_nll_loss, smooth_l1_loss, soft_margin_loss"
)


@pytest.mark.parametrize(("arguments", "message"), [
    ({}, "a task needs a loss, such as torch.nn.functional.cross_entropy"),
    ({"loss": "cross_entrpy"},
     f"there is no loss 'cross_entrpy': did you mean 'cross_entropy'? (there are: {LOSSES}); write "
     "one of your own as file.py:function"),
    ({"loss": "importlib"},
     f"there is no loss 'importlib': did you mean 'smooth_l1_loss'? (there are: {LOSSES}); write "
     "one of your own as file.py:function"),
    ({"loss": "math:pi"}, "math:pi is not a function of outputs and targets"),
    ({"loss": 3}, "a loss is a function of outputs and targets, not a 3"),
    ({"loss": "mse_loss", "metrics": ["accuracy"]},
     "there is no metric 'accuracy': give a function of outputs and targets, a metric of "
     "torchmetrics, or the place of one, as file.py:function"),
    ({"loss": "mse_loss", "metrics": [hits], "metric": "hit"},
     "the task has no metric 'hit': did you mean 'hits'? (there are: loss, hits)"),
])  # fmt: skip
def test_what_is_wrong_is_one_sentence(arguments, message):
    with pytest.raises(UsageError) as caught:
        Supervised(**arguments)
    assert str(caught.value) == message


def test_a_network_without_head_needs_the_number_of_outputs():
    with pytest.raises(UsageError, match="the task does not say how many outputs it has: give `ou"):
        Supervised("mse_loss").head(3)
    with pytest.raises(UsageError, match="no metric 'f1': did you mean"):
        measured(Supervised(base=Classification(3), metric="f1"))


def test_a_whole_federation_with_a_network_a_data_set_a_loss_and_a_metric_of_ones_own():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.out = nn.Linear(3, 8), nn.Linear(8, 1)

        def forward(self, x):
            return self.out(self.body(x).tanh()).squeeze(1)

    def mae(output, target):
        return (output - target).abs().mean()

    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(80, 3, generator=generator)
    task = Supervised(F.huber_loss, [mae], higher_is_better=False)
    member = Member.of({"sum": task}, Net, (inputs, inputs.sum(1)))
    run = Run(Federation({"a": member, "b": member}), FedAvg(LocalTraining(lr=0.1)), Schedule(20))
    values = [row.value for row in run.go() if row.metric == "mae" and row.split == "test"]
    assert values[-1] < 0.6 * values[0]


def test_one_column_of_outputs_is_one_number_per_example():
    """Otherwise every output would be compared with every target."""
    output, target = torch.tensor([[1.0], [2.0], [4.0]]), torch.tensor([1.0, 2.0, 3.0])
    task = Supervised("mse_loss", metrics={"worst": lambda found, true: (found - true).abs().max()})
    assert float(task.loss(output, target)) == pytest.approx(1 / 3)
    meter = task.meter()
    meter.update(output, target)
    assert meter.compute() == {"loss": pytest.approx(1 / 3), "worst": 1.0}
