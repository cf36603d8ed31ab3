from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from consort.domains.scenes.metrics.panoptic import NUMBERS, UNKNOWN
from consort.domains.scenes.tasks.panoptic import Instances, Panoptic
from consort.domains.scenes.tasks.things import centre_targets, middles
from consort.tasks import Task

TASKS = {"panoptic": Panoptic(5, stuff=2, sigma=2.0), "instances": Instances(4, sigma=2.0)}
every_task = pytest.mark.parametrize("name", TASKS)


def some_target(name, count=2, size=(24, 32), seed=0):
    """A wall above a floor, and boxes of several classes in front of each other."""
    generator = torch.Generator().manual_seed(seed)
    codes = torch.zeros(count, *size, dtype=torch.int32)
    if name == "panoptic":
        codes[:, size[0] // 2 :] = 1000
    first = TASKS[name].stuff
    for image in codes:
        for number in range(1, 4):
            kind = int(torch.randint(first, TASKS[name].classes, (), generator=generator))
            top = int(torch.randint(size[0] - 6, (), generator=generator))
            left = 10 * (number - 1) + int(torch.randint(3, (), generator=generator))
            image[top : top + 6, left : left + 7] = kind * NUMBERS + number
    return codes


def perfect_output(task, codes):
    heat, ways = centre_targets(codes, task.classes, task.sigma)
    kind = torch.where(codes < UNKNOWN, codes // NUMBERS, 0).long()
    logits = 50 * F.one_hot(kind, task.classes).permute(0, 3, 1, 2).float()
    return torch.cat([logits, heat[:, None], ways], 1)


def some_output(name, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, TASKS[name].outputs, 24, 32, generator=generator)


def measured(task, output, target):
    meter = task.meter()
    meter.update(output, target)
    return meter.compute()


@every_task
def test_it_is_a_task_with_a_head_of_the_size_of_the_image(name):
    task = TASKS[name]
    assert isinstance(task, Task)
    assert task.dense
    assert hash(task) == hash(type(task)(task.classes, task.stuff, sigma=2.0))
    assert task.head(16)(torch.randn(2, 16, 2, 3)).shape == (2, task.classes + 3, 8, 12)


def test_instances_are_not_panoptic():
    assert Instances(4, stuff=1, metric="pq") != Panoptic(4, stuff=1)


@every_task
@given(seed=st.integers(0, 999))
def test_the_truth_has_no_loss_and_is_found_again(name, seed):
    task, target = TASKS[name], some_target(name, seed=seed)
    output = perfect_output(task, target)
    assert float(task.loss(output, target)) == 0
    assert measured(task, output, target)[task.metric] == 1
    for found, true in zip(map(task.found, output), target, strict=True):
        assert torch.equal(found[0] // NUMBERS, true.long() // NUMBERS)
        assert len(found[1]) == len(true[true % NUMBERS > 0].unique())


def hidden(target, where):
    return torch.where(where, UNKNOWN, target).int()


@every_task
def test_ignored_pixels_have_no_say_in_the_loss(name):
    task, target, output = TASKS[name], some_target(name), some_output(name)
    where = torch.zeros(target.shape, dtype=torch.bool)
    where[:, :3] = True
    changed = torch.where(where[:, None], -output, output)
    left = hidden(target, where)
    torch.testing.assert_close(task.loss(changed, left), task.loss(output, left))
    assert float(task.loss(output, left)) != pytest.approx(float(task.loss(output, target)))


@every_task
def test_a_mask_that_is_all_ignored_has_no_loss_no_gradient_and_no_score(name):
    task, output = TASKS[name], some_output(name).requires_grad_()
    target = torch.full((2, 24, 32), UNKNOWN, dtype=torch.int32)
    loss = task.loss(output, target)
    loss.backward()
    assert loss.item() == 0
    assert output.grad.abs().max() == 0
    assert measured(task, output.detach(), target) == {}


@every_task
def test_an_image_without_any_thing(name):
    task, target = TASKS[name], torch.zeros(1, 24, 32, dtype=torch.int32)
    output = perfect_output(task, target)
    assert float(task.loss(output, target)) == 0
    expected = {"pq": 1, "sq": 1, "rq": 1, "loss": 0} if name == "panoptic" else {}
    assert measured(task, output, target) == expected
    output[:, task.classes - 1] = 99  # things everywhere, and no middle of one
    codes, found, scores = task.found(output[0])
    assert bool((codes == UNKNOWN).all())
    assert len(found) == len(scores) == 0


@every_task
def test_batches_add_up(name):
    task, target, output = TASKS[name], some_target(name), some_output(name)
    output[:, : task.classes] += perfect_output(task, target)[:, : task.classes] / 20
    meter = task.meter()
    for row in range(2):
        meter.update(output[row : row + 1], target[row : row + 1])
    assert meter.compute() == pytest.approx(measured(task, output, target), rel=1e-6)


def test_the_loss_by_hand():
    """Two classes, one thing of two pixels: the way is half a pixel, of four, to its middle."""
    task = Panoptic(2, stuff=1, sigma=1.0)
    target = torch.tensor([[[0, 1001, 1001, UNKNOWN]]], dtype=torch.int32)
    output = torch.zeros(1, 5, 1, 4)
    bell = torch.tensor([2.0, 1.0, 0.0]).square().div(-2).exp()  # 1.5 is rounded to 2
    expected = torch.log(torch.tensor(2.0)) + 200 * bell.square().sum() / 3 + 6.4 / 4 * 0.5
    torch.testing.assert_close(task.loss(output, target), expected)


def test_classes_are_learnt_where_they_are_hardest():
    """Of ten known pixels the two with the largest losses count: of 40, the 6 of a thing."""
    task = Panoptic(2, stuff=1, sigma=1.0)
    for width, count in ((10, 2), (40, 6)):
        target = torch.zeros(1, 1, width, dtype=torch.int32)
        output = torch.zeros(1, 5, 1, width, requires_grad=True)
        hard = torch.zeros(width, dtype=torch.bool)
        hard[3 : 3 + count] = True
        easy = output + torch.where(hard, 0.0, 2.0) * torch.eye(5)[0].view(1, 5, 1, 1)
        loss = task.loss(easy, target)
        torch.testing.assert_close(loss, torch.log(torch.tensor(2.0)))
        loss.backward()
        assert torch.equal(output.grad[0, 0, 0] != 0, hard)


@every_task
def test_a_way_counts_by_the_size_of_the_image(name):
    """An image twice as large, with things twice as large, and ways as wrong by that measure."""
    task = TASKS[name]
    target = some_target(name)
    output = perfect_output(task, target)
    double = target.repeat_interleave(2, 1).repeat_interleave(2, 2)
    larger = perfect_output(task, double)
    output[:, -1] += 1
    larger[:, -1] += 2
    torch.testing.assert_close(task.loss(larger, double), task.loss(output, target))


@given(st.integers(0, 999))
def test_middles_are_the_means_of_their_pixels(seed):
    codes = some_target("panoptic", seed=seed)
    found = middles(codes, 5)
    for image, centre in zip(codes, found, strict=True):
        for code in image[image % NUMBERS > 0].unique():
            where = (image == code).nonzero().double()
            inside = centre[:, image == code]
            expected = where.mean(0)[:, None].expand_as(inside)
            torch.testing.assert_close(inside.double(), expected)


def test_things_with_one_number_in_two_classes_are_two():
    codes = torch.tensor([[[2001, 2001, 3001, 3001]]])
    assert middles(codes, 5)[0, 1, 0].tolist() == [0.5, 0.5, 2.5, 2.5]


def test_a_thing_has_the_class_of_most_of_its_pixels_and_a_score():
    task, target = TASKS["instances"], torch.zeros(1, 24, 32, dtype=torch.int32)
    target[0, 4:10, 4:10] = 2001
    output = perfect_output(task, target)
    output[0, :4, 4, 4:10] = torch.tensor([0.0, 0, 0, 50])[:, None]  # one row of another class
    output[0, task.classes] *= 0.8
    codes, found, scores = task.found(output[0])
    assert found.tolist() == [2001]
    assert int((codes == 2001).sum()) == 36
    assert scores.tolist() == pytest.approx([0.8 * 30 / 36])


def test_losses_of_many_clients_can_be_taken_at_once():
    for name, task in TASKS.items():
        output, target = some_output(name), some_target(name)
        one_by_one = [task.loss(output[i : i + 1], target[i : i + 1]) for i in range(2)]
        at_once = torch.func.vmap(lambda o, t, task=task: task.loss(o[None], t[None]))
        torch.testing.assert_close(at_once(output, target), torch.stack(one_by_one))


def test_impossible_numbers_of_classes_are_refused():
    for classes, stuff in ((1, 0), (256, 1), (3, 3), (3, -1)):
        with pytest.raises(ValueError, match="classes"):
            Panoptic(classes, stuff)
