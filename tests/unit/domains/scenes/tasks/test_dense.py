from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from consort.domains.scenes.tasks.dense import IGNORED, DenseHead
from consort.domains.scenes.tasks.edges import Edges
from consort.domains.scenes.tasks.geometry import Depth, Normals
from consort.domains.scenes.tasks.segmentation import Saliency, Segmentation
from consort.tasks import Task

SHAPE = 2, 8, 8
TASKS = {
    "segmentation": Segmentation(4),
    "saliency": Saliency(),
    "edges": Edges(),
    "normals": Normals(),
    "depth": Depth(),
}
every_task = pytest.mark.parametrize("name", TASKS)


def some_target(name, seed=0):
    generator = torch.Generator().manual_seed(seed)
    match name:
        case "segmentation":
            return torch.randint(4, SHAPE, generator=generator).to(torch.uint8)
        case "saliency" | "edges":
            return torch.randint(2, SHAPE, generator=generator).to(torch.uint8)
        case "normals":
            vectors = torch.randn(2, 3, 8, 8, generator=generator)
            return F.normalize(vectors, dim=1).half()
        case "depth":
            return (1 + 5 * torch.rand(SHAPE, generator=generator)).half()


def some_output(name, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, TASKS[name].outputs, 8, 8, generator=generator)


def perfect_output(name, target):
    match name:
        case "segmentation":
            return 50 * F.one_hot(target.long(), 4).permute(0, 3, 1, 2).float()
        case "saliency":
            return 50 * F.one_hot(target.long(), 2).permute(0, 3, 1, 2).float()
        case "edges":
            return 50 * (2 * target[:, None].float() - 1)
        case "normals":
            return 7 * target.float()
        case "depth":
            return target[:, None].float()


def measured(task, output, target):
    meter = task.meter()
    meter.update(output, target)
    return meter.compute()


@every_task
def test_it_is_a_task_with_a_head_of_the_size_of_the_image(name):
    task = TASKS[name]
    assert isinstance(task, Task)
    assert task.dense
    assert hash(task) == hash(type(task)(*([4] if name == "segmentation" else [])))
    assert task.head(16)(torch.randn(2, 16, 2, 2)).shape == (2, task.outputs, 8, 8)


def test_the_head_has_the_published_size():
    for outputs in (1, 21, 40):
        head = DenseHead(96, outputs)
        assert sum(p.numel() for p in head.parameters()) == 23_112 + 25 * outputs


@every_task
def test_the_truth_has_no_loss_and_the_best_score(name):
    task, target = TASKS[name], some_target(name)
    if name == "edges":
        target = torch.zeros(2, 8, 8, dtype=torch.uint8)
        target[:, :, 4] = 1
    output = perfect_output(name, target)
    assert float(task.loss(output, target)) == pytest.approx(0, abs=2e-3)
    best = {"miou": 1, "max_f": 1, "ods_f": 1, "mean_error": 0, "rmse": 0}[task.metric]
    assert measured(task, output, target)[task.metric] == pytest.approx(best, abs=0.05)


def hidden(name, target, where):
    if name == "normals":
        return torch.where(where[:, None], torch.tensor(float(IGNORED)).half(), target)
    return torch.where(where, torch.tensor(IGNORED).to(target.dtype), target)


@every_task
def test_ignored_pixels_have_no_say(name):
    task, target, output = TASKS[name], some_target(name), some_output(name)
    where = torch.zeros(SHAPE, dtype=torch.bool)
    where[:, :3] = True
    changed = torch.where(where[:, None], -output, output)
    left = hidden(name, target, where)
    torch.testing.assert_close(task.loss(changed, left), task.loss(output, left))
    assert float(task.loss(output, left)) != pytest.approx(float(task.loss(output, target)))
    if name != "edges":  # thin edges depend on their neighbours
        one, other = measured(task, changed, left), measured(task, output, left)
        assert one == pytest.approx(other, rel=1e-6)


@every_task
def test_a_mask_that_is_all_ignored_has_no_loss_no_gradient_and_no_score(name):
    task, output = TASKS[name], some_output(name).requires_grad_()
    target = hidden(name, some_target(name), torch.ones(SHAPE, dtype=torch.bool))
    loss = task.loss(output, target)
    loss.backward()
    assert loss.item() == 0
    assert output.grad.abs().max() == 0
    assert measured(task, output.detach(), target) == {}


@every_task
def test_batches_add_up(name):
    task, target, output = TASKS[name], some_target(name), some_output(name)
    meter = task.meter()
    for row in range(2):
        meter.update(output[row : row + 1], target[row : row + 1])
    assert meter.compute() == pytest.approx(measured(task, output, target), rel=1e-6)


@every_task
def test_the_loss_measured_is_the_loss_learnt(name):
    """Saliency is weighed by the balance of a batch when it is learnt."""
    task, target, output = TASKS[name], some_target(name), some_output(name)
    if name != "saliency":
        expected = float(task.loss(output, target))
        assert measured(task, output, target)["loss"] == pytest.approx(expected, rel=1e-5)


def test_segmentation_is_cross_entropy_over_known_pixels():
    target, output = some_target("segmentation"), some_output("segmentation")
    target[0, 0] = IGNORED
    expected = F.cross_entropy(output, target.long(), ignore_index=IGNORED)
    torch.testing.assert_close(TASKS["segmentation"].loss(output, target), expected)


def test_saliency_weighs_each_class_by_the_other():
    target, output = torch.zeros(1, 2, 2, dtype=torch.uint8), torch.randn(1, 2, 2, 2)
    target[0, 0, 0] = 1
    weights = torch.tensor([0.25, 0.75])
    expected = F.cross_entropy(output, target.long(), weight=weights, reduction="sum") / 4
    torch.testing.assert_close(Saliency().loss(output, target), expected)


def test_saliency_is_scored_over_thresholds():
    chances = torch.tensor([[[0.9, 0.6], [0.4, 0.1]]])
    output = torch.stack([torch.zeros_like(chances), torch.logit(chances)], 1)
    target = torch.tensor([[[1, 0], [1, 0]]], dtype=torch.uint8)
    found = measured(Saliency(), output, target)
    options = [(1.0, 0.5), (0.5, 0.5), (2 / 3, 1.0)]  # precision and recall, from high to low
    assert found["max_f"] == pytest.approx(max(1.3 * p * r / (0.3 * p + r) for p, r in options))
    assert found["miou"] == pytest.approx(2 / 3)


def test_edges_weigh_more_than_the_rest():
    target = torch.tensor([[[1, 0], [0, IGNORED]]], dtype=torch.uint8)
    output = torch.zeros(1, 1, 2, 2)
    expected = math.log(2) * (0.95 + 0.05 + 0.05) / 3
    assert float(Edges().loss(output, target)) == pytest.approx(expected)


def test_normals_are_scaled_to_unit_length_before_they_are_compared():
    target, output = some_target("normals"), some_output("normals")
    torch.testing.assert_close(Normals().loss(output, target), Normals().loss(9 * output, target))
    expected = (F.normalize(output, dim=1) - target.float()).abs().sum() / (2 * 8 * 8)
    torch.testing.assert_close(Normals().loss(output, target), expected)


def test_the_angle_of_opposite_normals_is_half_a_turn():
    target = some_target("normals").float()
    assert measured(Normals(), -target, target)["mean_error"] == pytest.approx(180, abs=1e-3)


def test_depths_of_zero_and_beyond_eighty_are_not_known():
    target = torch.tensor([[[0.0, 80.0], [255.0, 2.0]]])
    output = torch.full((1, 1, 2, 2), -1.0)
    found = measured(Depth(), output, target)
    assert found == {"rmse": 2.0, "loss": 3.0}  # a depth below zero is scored as zero
    assert float(Depth().loss(output, target)) == 3.0


@given(st.floats(0.5, 2.0), st.booleans())
def test_depth_is_divided_by_the_scale_and_ignored_depths_stay(scale, mirrored):
    target = torch.tensor([[[3.0, 0.0], [255.0, 6.0]]])
    seen = Depth().seen(target, torch.tensor([scale]), torch.tensor([mirrored]))
    expected = torch.tensor([[[3 / scale, 0.0], [255.0, 6 / scale]]])
    torch.testing.assert_close(seen, expected)


@given(st.booleans())
def test_normals_change_sides_in_a_mirror_and_ignored_ones_stay(mirrored):
    target = some_target("normals")[:1]
    target[:, :, 0] = IGNORED
    seen = Normals().seen(target, torch.ones(1), torch.tensor([mirrored]))
    sign = -1 if mirrored else 1
    torch.testing.assert_close(seen[:, 0, 1:], sign * target[:, 0, 1:])
    assert torch.equal(seen[:, 1:], target[:, 1:])
    assert bool((seen[:, :, 0] == IGNORED).all())
    again = Normals().seen(seen, torch.ones(1), torch.tensor([mirrored]))
    assert torch.equal(again, target)


def test_impossible_numbers_of_classes_are_refused():
    for classes in (1, 256):
        with pytest.raises(ValueError, match="classes"):
            Segmentation(classes)
