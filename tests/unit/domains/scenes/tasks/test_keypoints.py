from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from consort.domains.scenes.tasks.figures import found_figures, nearest_pairs
from consort.domains.scenes.tasks.heat import gaussians
from consort.domains.scenes.tasks.keypoints import KeyPoints, joint_pixels, tag_loss
from consort.tasks import Task

TASK = KeyPoints((0.05, 0.1, 0.1), (0, 2, 1), sigma=2.0)
SIZE = (32, 40)
AREA = 120.0


def some_target(seed=0, most=3):
    """Two figures, left and right, and room for one more; one joint of them is not known."""
    generator = torch.Generator().manual_seed(seed)
    places = torch.randint(2, 9, (2, 3, 2), generator=generator) + 0.5
    places = places + torch.tensor([[[0.0, 0], [0, 10], [0, 20]]])
    places[1, :, 0] += 20
    ones = torch.ones(2, 3, 1)
    figures = torch.cat([places, 2 * ones, AREA * ones], -1)
    figures[1, 2] = 0
    return F.pad(figures, (0, 0, 0, 0, 0, most - len(figures)))[None]


def perfect_output(target):
    pixels, there = joint_pixels(target, SIZE)
    heat = gaussians(pixels.transpose(1, 2), there.transpose(1, 2), TASK.sigma, SIZE)
    tags = torch.where(torch.arange(SIZE[1]) < 20, -20.0, 20.0).expand_as(heat)
    return torch.cat([heat, tags], 1)


def measured(output, target):
    meter = TASK.meter()
    meter.update(output, target)
    return meter.compute()


def test_it_is_a_task_with_a_head_of_the_size_of_the_image():
    assert isinstance(TASK, Task)
    assert hash(TASK) == hash(KeyPoints((0.05, 0.1, 0.1), (0, 2, 1), sigma=2.0))
    assert TASK.head(16)(torch.randn(2, 16, 2, 3)).shape == (2, 6, 8, 12)


@given(st.integers(0, 999))
def test_the_truth_has_no_loss_and_is_found_again(seed):
    target = some_target(seed)
    output = perfect_output(target)
    assert float(TASK.loss(output, target)) == 0
    assert measured(output, target)["ap"] == 1
    found, scores = found_figures(output[0, :3], output[0, 3:])
    order = found[:, 0, 0].argsort()
    assert torch.equal(found[order[0]], target[0, 0, :, :2])
    assert torch.equal(found[order[1], :2], target[0, 1, :2, :2])
    assert scores[order].tolist() == pytest.approx([1, 2 / 3])


def test_images_without_figures_teach_that_there_are_none_and_have_no_score():
    target = torch.zeros(2, 3, 3, 4)
    output = torch.zeros(2, 6, *SIZE, requires_grad=True)
    assert TASK.loss(output, target).item() == 0
    loud = (output + 1).detach().requires_grad_()
    TASK.loss(loud, target).backward()
    assert bool((loud.grad[:, :3] > 0).all())
    assert measured(output.detach(), target) == {}


def test_figures_that_are_imagined_lower_the_score():
    target = some_target()
    output = perfect_output(target).repeat(2, 1, 1, 1)
    output[0, :3] *= 0.5
    both = torch.cat([target, torch.zeros_like(target)])
    assert measured(output, both)["ap"] == pytest.approx(0.5, abs=0.01)


def test_tags_by_hand():
    """Figures with tags 1 and 3, and 5: a spread of 1 and 0, and means 2 and 5 that are 3 apart."""
    tags = torch.tensor([1.0, 3.0, 5.0, 9.0]).view(1, 1, 2, 2).expand(1, 2, 2, 2)
    pixels = torch.tensor([[[[0, 0], [0, 1]], [[1, 0], [7, 7]], [[1, 1], [1, 1]]]])
    there = torch.tensor([[[True, True], [True, False], [False, False]]])
    expected = (1 + 0) / 2 + math.exp(-9 / 2)
    assert float(tag_loss(tags, pixels, there)) == pytest.approx(expected)
    lonely = there & torch.tensor([True, False, False])[:, None]
    assert float(tag_loss(tags, pixels, lonely)) == pytest.approx(1)
    assert float(tag_loss(tags, pixels, there & False)) == 0


def test_the_loss_is_made_of_places_and_tags():
    """Joints of 2 in 40 pixels are 3.2 times as wide as the published ones of 2 in 128."""
    target, output = some_target(), torch.randn(1, 6, *SIZE, generator=torch.Generator())
    pixels, there = joint_pixels(target, SIZE)
    squares = (output[:, :3] - perfect_output(target)[:, :3]).square().mean()
    tags = 1e-3 * 3.2**2 * tag_loss(output[:, 3:], pixels, there)
    expected = squares + tags
    torch.testing.assert_close(TASK.loss(output, target), expected)
    marked = KeyPoints(TASK.sigmas, TASK.mirrored, sigma=2.0, emphasis=5.0)
    truth = perfect_output(target)[:, :3]
    more = 5 * (truth * (output[:, :3] - truth).square()).mean()
    torch.testing.assert_close(marked.loss(output, target), expected + more + 5 * tags)


@given(st.permutations(range(4)))
def test_the_order_of_figures_does_not_matter(order):
    target, output = some_target(most=4), torch.randn(1, 6, *SIZE, generator=torch.Generator())
    torch.testing.assert_close(TASK.loss(output, target[:, order]), TASK.loss(output, target))


def test_joints_outside_of_the_image_are_not_learnt():
    inside, outside = some_target(), some_target()
    inside[0, 0, 0] = 0
    outside[0, 0, 0, :2] = torch.tensor([SIZE[1], 3.0])
    output = torch.randn(1, 6, *SIZE, generator=torch.Generator())
    assert torch.equal(TASK.loss(output, inside), TASK.loss(output, outside))


def test_batches_add_up():
    target = torch.cat([some_target(1), some_target(2)])
    output = perfect_output(target) + 0.05 * torch.randn(2, 6, *SIZE, generator=torch.Generator())
    meter = TASK.meter()
    for row in range(2):
        meter.update(output[row : row + 1], target[row : row + 1])
    assert meter.compute() == pytest.approx(measured(output, target), rel=1e-6)


def test_tags_pair_up_that_are_near_and_among_them_the_first():
    assert nearest_pairs([0.2], [0.5, 0.3]) == {0: 0}
    assert nearest_pairs([0.2, 0.6, 9.0], [0.5, 3.0]) == {0: 0}
    assert nearest_pairs([0.2, 0.6], [0.5, 0.6]) == {0: 0, 1: 1}
    assert nearest_pairs([1.2, 0.6], [0.5]) == {1: 0}
    assert nearest_pairs([1.2, 0.6], [0.5, 2.1]) == {1: 0, 0: 1}
    assert nearest_pairs([0.0], [1.0]) == nearest_pairs([0.0], []) == {}


def test_a_joint_that_is_lacking_is_where_its_map_is_highest_near_the_tag():
    """It is too low to be found: 0.05 among tags of the figure, and 0.09 elsewhere."""
    output = perfect_output(some_target())[0]
    heat, tags = output[:3], output[3:]
    heat[2, 4, 30], heat[2, 9, 5] = 0.05, 0.09
    heat[2, 20:] = 0  # that of the left figure, too, is gone
    found, scores = found_figures(heat, tags)
    left, right = found[found[:, 0, 0].argsort()]
    assert left[2].tolist() == [5.5, 9.5]
    assert right[2].tolist() == [30.5, 4.5]
    assert scores.tolist() == pytest.approx([2 / 3, 2 / 3])


def test_figures_with_like_tags_become_one_and_their_second_joint_another():
    output = perfect_output(some_target())[0]
    found, _ = found_figures(output[:3], torch.zeros(3, *SIZE))
    assert len(found) == 2  # two heads cannot be of one figure
    assert (
        len(found_figures(output[:3], 9 * output[3:] * torch.arange(1, 4)[:, None, None])[0]) == 5
    )


def test_losses_of_many_clients_can_be_taken_at_once():
    target = torch.cat([some_target(1), some_target(2)])
    output = torch.randn(2, 6, *SIZE, generator=torch.Generator())
    one_by_one = [TASK.loss(output[i : i + 1], target[i : i + 1]) for i in range(2)]
    at_once = torch.func.vmap(lambda o, t: TASK.loss(o[None], t[None]))(output, target)
    torch.testing.assert_close(at_once, torch.stack(one_by_one))


@given(st.floats(0.5, 2.0), st.booleans())
def test_in_a_mirror_left_is_right_and_areas_grow_with_the_square(scale, mirrored):
    target = some_target()
    seen = TASK.seen(target, torch.tensor([scale]), torch.tensor([mirrored]))
    order = [0, 2, 1] if mirrored else [0, 1, 2]
    assert torch.equal(seen[..., :3], target[:, :, order, :3])
    torch.testing.assert_close(seen[..., 3], target[:, :, order, 3] * scale**2)


def test_impossible_mirrors_are_refused():
    for sigmas, mirrored in [
        ((0.1,) * 3, (1, 2, 0)),
        ((0.1,) * 3, (0, 1)),
        ((0.1,), (1,)),
        ((), ()),
    ]:
        with pytest.raises(ValueError, match="does not pair up"):
            KeyPoints(sigmas, mirrored)
