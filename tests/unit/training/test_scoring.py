from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from tests.helpers import TWO_TASKS, normed_model, tiny_federation, tiny_splits
from torch import Tensor, nn

from consort.core.params import Params, statistics
from consort.data.examples import Examples, Splits
from consort.models.multitask import BatchNormPolicy, MultiTaskModel
from consort.tasks import Classification
from consort.training.scoring import BATCH, measure, recompute_statistics, score

TASKS = {"classify": Classification(3)}


def transparent(**heads: nn.Module) -> MultiTaskModel:
    """A model whose outputs are its inputs, so that tests choose the logits."""
    return MultiTaskModel(nn.Identity(), heads or {"classify": nn.Identity()})


def guesses(right: int, wrong: int, label: int = 0) -> Examples:
    logits = torch.zeros(right + wrong, 3)
    logits[:right, label] = 1.0
    logits[right:, (label + 1) % 3] = 1.0
    return Examples(logits, {"classify": torch.full((right + wrong,), label)})


NOTHING = guesses(0, 0)


def test_scores_of_each_split_by_hand():
    data = Splits(
        guesses(0, 9), guesses(3, 1), Examples.concatenate([guesses(1, 1), guesses(2, 0, 1)])
    )
    scores = score(transparent(), TASKS, data)
    assert scores.keys() == {"validation", "test"}
    assert scores["validation"]["n"] == 4
    assert scores["validation"]["tasks"]["classify"]["accuracy"] == 0.75
    assert scores["test"]["n"] == 4
    assert scores["test"]["tasks"]["classify"]["accuracy"] == 0.75
    assert scores["test"]["tasks"]["classify"]["balanced_accuracy"] == (0.5 + 1.0) / 2
    right = math.log(2 + math.e) - 1
    assert scores["test"]["tasks"]["classify"]["loss"] == pytest.approx((4 * right + 1) / 4)


def test_a_client_with_one_class_is_scored():
    scores = score(transparent(), TASKS, Splits(guesses(1, 0), guesses(1, 3, 2), guesses(1, 0)))
    metrics = scores["validation"]["tasks"]["classify"]
    assert metrics["accuracy"] == metrics["balanced_accuracy"] == 0.25


def test_empty_splits_are_left_out():
    assert score(transparent(), TASKS, Splits(guesses(2, 0), NOTHING, guesses(1, 1))).keys() == {
        "test"
    }
    assert score(transparent(), TASKS, Splits(guesses(2, 0), NOTHING, NOTHING)) == {}


@pytest.mark.parametrize("count", [BATCH - 1, BATCH, BATCH + 1, 2 * BATCH + 37])
def test_every_example_counts_once_whatever_the_batches(count):
    examples = guesses(count // 3, count - count // 3)
    metrics = measure(transparent(), TASKS, examples)["classify"]
    assert metrics["accuracy"] == (count // 3) / count


def test_several_tasks_are_measured_apart():
    class Flip(nn.Module):
        def forward(self, features: Tensor) -> Tensor:
            return -features[:, :2]

    labels = torch.tensor([0, 1, 0])
    examples = Examples(torch.eye(3)[labels], {"plain": labels, "flipped": labels})
    tasks = {"plain": Classification(3), "flipped": Classification(2)}
    found = measure(transparent(plain=nn.Identity(), flipped=Flip()), tasks, examples)
    assert found["plain"]["accuracy"] == 1.0
    assert found["flipped"]["accuracy"] == 0.0


def test_only_the_tasks_of_the_client_are_measured():
    model = transparent(classify=nn.Identity(), other=nn.Linear(99, 2))
    assert measure(model, TASKS, guesses(1, 0)).keys() == {"classify"}


def test_real_clients_with_two_tasks_have_all_metrics():
    federation = tiny_federation(clients=2, tasks=TWO_TASKS)
    model = federation.blueprint("c0").fresh()
    scores = score(model, federation.members["c0"].tasks, federation.data("c0"))
    for split in ("validation", "test"):
        assert scores[split]["n"] == 10
        assert scores[split]["tasks"].keys() == TWO_TASKS.keys()
        for metrics in scores[split]["tasks"].values():
            assert metrics.keys() == {"accuracy", "balanced_accuracy", "loss"}


@pytest.mark.parametrize("policy", ["average", "local"])
def test_scoring_changes_nothing_in_the_model(policy: BatchNormPolicy):
    model = normed_model(policy)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    first = score(model, TASKS, tiny_splits("c0"))
    assert not model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert score(model, TASKS, tiny_splits("c0")) == first


# Statistics computed anew


def batch_statistics(inputs: Tensor, layer: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    """The plain means, over batches, of means and of unbiased variances, in double precision."""
    with torch.no_grad():
        batches = [layer(batch).double() for batch in inputs.split(BATCH) if len(batch) > 1]
    means = torch.stack([batch.mean(0) for batch in batches])
    variances = torch.stack([batch.var(0) for batch in batches])
    return means.mean(0), variances.mean(0)


@pytest.mark.parametrize("count", [2, 30, BATCH, BATCH + 1, BATCH + 50, 2 * BATCH + 77])
def test_statistics_are_the_plain_mean_of_those_of_the_batches(count):
    model = normed_model("recompute")
    inputs = torch.randn(count, 8) * torch.arange(1, 9) + 5
    examples = Examples(inputs, {"classify": torch.zeros(count)})
    recompute_statistics(model, examples)
    norm = model.encoder.norm
    mean, variance = batch_statistics(inputs, model.encoder.layer)
    torch.testing.assert_close(norm.running_mean.double(), mean, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(norm.running_var.double(), variance, rtol=1e-5, atol=1e-5)


def test_deeper_layers_see_what_training_would_show_them():
    encoder = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 4), nn.BatchNorm1d(4))
    model = MultiTaskModel(encoder, {"classify": nn.Identity()}, batchnorm="recompute")
    inputs = torch.randn(BATCH + 60, 4) * 3 + 2
    recompute_statistics(model, Examples(inputs, {"classify": torch.zeros(len(inputs))}))

    def up_to_the_second(batch: Tensor) -> Tensor:
        normed = (batch - batch.mean(0)) / (batch.var(0, unbiased=False) + 1e-5).sqrt()
        return encoder[1](normed)

    mean, variance = batch_statistics(inputs, up_to_the_second)
    torch.testing.assert_close(encoder[2].running_mean.double(), mean, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(encoder[2].running_var.double(), variance, rtol=1e-4, atol=1e-5)


def test_the_layers_train_with_their_own_momentum_afterwards():
    model = normed_model("recompute")
    model.encoder.norm.momentum = 0.25
    recompute_statistics(model, tiny_splits("c0").train)
    assert model.encoder.norm.momentum == 0.25


def test_a_single_example_has_no_variance_so_statistics_are_the_initial_ones():
    model = normed_model("recompute")
    recompute_statistics(model, tiny_splits("c0", train=1).train)
    assert model.encoder.norm.running_mean.tolist() == [0.0] * 6
    assert model.encoder.norm.running_var.tolist() == [1.0] * 6


def test_models_without_batchnorm_are_left_alone():
    model = tiny_federation().blueprint("c0").fresh()
    before = Params.of(model)
    recompute_statistics(model, tiny_splits("c0").train)
    assert Params.of(model).equals(before)


def test_parameters_can_be_trained_after_statistics_were_recomputed():
    model = normed_model("recompute")
    examples = tiny_splits("c0").train
    recompute_statistics(model, examples)
    model.train()
    loss = TASKS["classify"].loss(model(examples.inputs)["classify"], examples.targets["classify"])
    loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_only_the_policy_recompute_replaces_statistics_before_scoring():
    data = tiny_splits("c0")
    for policy in ("average", "local", "recompute"):
        model = normed_model(policy)
        before = [value.clone() for value in statistics(model).values()]
        score(model, TASKS, data)
        unchanged = all(map(torch.equal, statistics(model).values(), before))
        assert unchanged is (policy != "recompute")


def test_recomputed_statistics_come_from_the_training_examples_alone():
    model = normed_model("recompute")
    data = tiny_splits("c0")
    score(model, TASKS, data)
    mean, _ = batch_statistics(data.train.inputs, model.encoder.layer)
    torch.testing.assert_close(model.encoder.norm.running_mean.double(), mean, rtol=1e-5, atol=1e-6)
    scored = score(model, TASKS, data)["test"]["tasks"]["classify"]
    recompute_statistics(model, data.train)
    model.eval()
    assert measure(model, TASKS, data.test)["classify"] == scored
