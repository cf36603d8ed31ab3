from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from consort.data.examples import Examples
from consort.domains.scenes.augment import Views, random_views, relit, seen, varied
from consort.domains.scenes.metrics.panoptic import NUMBERS, UNKNOWN
from consort.domains.scenes.tasks.dense import IGNORED
from consort.domains.scenes.tasks.edges import Edges
from consort.domains.scenes.tasks.geometry import Depth, Normals
from consort.domains.scenes.tasks.keypoints import KeyPoints
from consort.domains.scenes.tasks.panoptic import Instances, Panoptic
from consort.domains.scenes.tasks.segmentation import Segmentation
from consort.domains.scenes.tasks.things import middles
from consort.errors import UsageError
from consort.tasks import Classification

TASKS = {"segment": Segmentation(9), "normals": Normals(), "depth": Depth(), "edges": Edges()}
THINGS = {
    "segment": Segmentation(9),
    "panoptic": Panoptic(9, stuff=3),
    "instances": Instances(7),
    "keypoints": KeyPoints((0.1,) * 3, (0, 2, 1)),
}
SIZE = 16


def some_examples(count=3, seed=0):
    """Images whose first channel is the class of the pixel, so that both can be compared."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(9, (count, SIZE // 4, SIZE // 4), generator=generator)
    labels = labels.repeat_interleave(4, 1).repeat_interleave(4, 2)
    inputs = torch.stack(
        [labels.float(), *torch.rand(2, count, SIZE, SIZE, generator=generator)], 1
    )
    normals = F.normalize(torch.randn(count, 3, SIZE, SIZE, generator=generator), dim=1)
    targets = {
        "segment": labels.to(torch.uint8),
        "normals": normals.half(),
        "depth": (1 + labels).half(),
        "edges": (labels == 3).to(torch.uint8),
    }
    return Examples(inputs, targets)


def views(scale=1.0, centre=(0.0, 0.0), mirrored=False, count=3):
    return Views(
        torch.full((count,), scale),
        torch.tensor([centre]).expand(count, 2),
        torch.full((count,), mirrored),
    )


def test_the_plain_view_changes_nothing():
    examples = some_examples()
    same = seen(examples, TASKS, views())
    torch.testing.assert_close(same.inputs, examples.inputs, atol=1e-5, rtol=0)
    for name, target in examples.targets.items():
        assert same.targets[name].dtype == target.dtype
        assert torch.equal(same.targets[name], target)


def test_a_task_without_maps_is_named():
    examples = some_examples()
    mixed = Examples(examples.inputs, examples.targets | {"whole": torch.zeros(3).long()})
    with pytest.raises(UsageError, match=r"local\.augment .* whole has none"):
        seen(mixed, TASKS | {"whole": Classification(2)}, views())


def test_in_a_mirror_everything_changes_sides_and_so_do_normals():
    examples = some_examples()
    flipped = seen(examples, TASKS, views(mirrored=True))
    torch.testing.assert_close(flipped.inputs, examples.inputs.flip(-1), atol=1e-5, rtol=0)
    for name in ("segment", "depth", "edges"):
        assert torch.equal(flipped.targets[name], examples.targets[name].flip(-1))
    turn = torch.tensor([-1.0, 1.0, 1.0])[:, None, None].half()
    assert torch.equal(flipped.targets["normals"], turn * examples.targets["normals"].flip(-1))
    again = seen(flipped, TASKS, views(mirrored=True))
    for name, target in examples.targets.items():
        assert torch.equal(again.targets[name], target)


def test_what_is_seen_twice_as_large_is_half_as_far_and_a_quarter_of_it_is_left():
    examples = some_examples()
    near = seen(examples, TASKS, views(scale=2.0, centre=(-0.5, 0.5)))
    part = examples.targets["depth"][:, SIZE // 2 :, : SIZE // 2]
    expected = part.repeat_interleave(2, 1).repeat_interleave(2, 2) / 2
    assert torch.equal(near.targets["depth"], expected)


def test_what_is_seen_half_as_large_is_twice_as_far_and_nothing_is_known_around_it():
    examples = some_examples()
    far = seen(examples, TASKS, views(scale=0.5))
    inner = slice(SIZE // 4, 3 * SIZE // 4)
    for name, target in far.targets.items():
        around = target.clone()
        around[..., inner, inner] = IGNORED
        assert bool((around == IGNORED).all()), name
    blocks = examples.targets["depth"][:, ::2, ::2] * 2
    assert torch.equal(far.targets["depth"][:, inner, inner], blocks)
    assert bool((far.targets["segment"][:, inner, inner] < 9).all())


@given(st.integers(0, 999))
def test_images_and_targets_move_together(seed):
    """The first channel is the class wherever no neighbour of another class is mixed in."""
    examples = some_examples(4, seed)
    drawn = random_views(4, torch.Generator().manual_seed(seed))
    moved = seen(examples, TASKS, drawn)
    labels = moved.targets["segment"].float()
    highest, lowest = F.max_pool2d(labels, 5, 1), -F.max_pool2d(-labels, 5, 1)
    sure = F.pad(highest == lowest, (2, 2, 2, 2)) & (labels != IGNORED)
    torch.testing.assert_close(moved.inputs[:, 0][sure], labels[sure], atol=1e-4, rtol=0)
    depth = moved.targets["depth"].float() * drawn.scale[:, None, None]
    torch.testing.assert_close(depth[sure], 1 + labels[sure], atol=0.02, rtol=0)
    assert torch.equal(moved.targets["edges"] == 1, labels == 3)


@given(st.integers(0, 999))
def test_views_stay_inside_of_images_that_are_enlarged(seed):
    drawn = random_views(50, torch.Generator().manual_seed(seed))
    assert float(drawn.scale.min()) >= 0.5
    assert float(drawn.scale.max()) <= 2.0
    larger = drawn.scale >= 1
    reach = drawn.centre.abs() + 1 / drawn.scale[:, None]
    assert float(reach[larger].max()) <= 1 + 1e-6
    moved = seen(some_examples(50), TASKS, drawn)
    whole = (moved.targets["segment"] != IGNORED).flatten(1).all(1)
    assert bool(whole[larger].all())


def test_light_changes_images_and_not_by_much():
    images = some_examples().inputs / 9
    lit = relit(images, torch.Generator().manual_seed(1))
    assert lit.shape == images.shape
    assert 0.01 < float((lit - images).abs().mean()) < 0.5


def test_every_call_varies_anew_and_the_generator_decides():
    examples = some_examples(5)
    one, same, other = (
        varied(examples, TASKS, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)
    )
    assert torch.equal(one.inputs, same.inputs)
    assert not torch.equal(one.inputs, other.inputs)
    assert len(one) == 5
    assert one.targets.keys() == examples.targets.keys()


@pytest.mark.parametrize("count", [0, 1, 65])
def test_any_number_of_examples_can_be_varied(count):
    assert len(varied(some_examples(count), TASKS, torch.Generator())) == count


def some_things(count=4, seed=0, height=SIZE, width=SIZE + 8):
    """Blocks of classes as numbered things, and joints in the middles of some pixels.

    Every pixel has a colour of its own, so that it can be recognised.
    """
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(9, (count, height // 4, width // 4), generator=generator)
    numbers = torch.randint(1, 4, labels.shape, generator=generator)
    labels, numbers = (
        part.repeat_interleave(4, 1).repeat_interleave(4, 2) for part in (labels, numbers)
    )
    thing = labels >= 3
    down = torch.randint(height, (count, 2, 3, 1), generator=generator)
    right = torch.randint(width, (count, 2, 3, 1), generator=generator)
    seen = torch.randint(3, (count, 2, 3, 1), generator=generator)
    joints = torch.cat([right + 0.5, down + 0.5, seen, torch.full_like(seen, 40)], -1)
    targets = {
        "segment": labels.to(torch.uint8),
        "panoptic": (labels * NUMBERS + numbers.where(thing, 0)).int(),
        "instances": ((labels - 2) * NUMBERS + numbers).where(thing, 0).int(),
        "keypoints": joints.where(seen > 0, 0.0),
    }
    places = torch.stack(torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij"))
    colours = torch.cat([places, torch.zeros_like(places[:1])]).expand(count, -1, -1, -1)
    return Examples(colours.float(), targets)


def test_the_plain_view_changes_no_thing():
    examples = some_things()
    same = seen(examples, THINGS, views(count=4))
    for name, target in examples.targets.items():
        assert same.targets[name].dtype == target.dtype
        torch.testing.assert_close(same.targets[name], target, atol=1e-5, rtol=0)


@given(st.integers(0, 999))
def test_things_move_with_their_classes_and_what_is_outside_is_ignored(seed):
    drawn = random_views(4, torch.Generator().manual_seed(seed))
    moved = seen(some_things(seed=seed), THINGS, drawn).targets
    kinds, codes, things = (moved[name].long() for name in ("segment", "panoptic", "instances"))
    outside = kinds == IGNORED
    assert torch.equal(codes == UNKNOWN, outside)
    assert torch.equal(things == UNKNOWN, outside)
    assert torch.equal(codes // NUMBERS, kinds)
    numbered = (kinds >= 3) & ~outside
    assert torch.equal(codes % NUMBERS > 0, numbered)
    assert torch.equal(things[~outside], torch.where(numbered, codes - 2000, 0)[~outside])


@given(st.integers(0, 999))
def test_to_see_and_then_to_learn_is_to_learn_and_then_to_see(seed):
    """In a mirror, the middles of things are mirrored, and so is what is learnt of them."""
    examples = some_things(seed=seed)
    flipped = seen(examples, THINGS, views(mirrored=True, count=4))
    width = examples.inputs.shape[-1]
    codes, mirror = examples.targets["panoptic"], flipped.targets["panoptic"]
    assert torch.equal(mirror, codes.flip(-1))
    before, after = middles(codes, 9).flip(-1), middles(mirror, 9)
    thing = (mirror % NUMBERS > 0)[:, None]
    torch.testing.assert_close(after[:, :1].where(thing, 0), before[:, :1].where(thing, 0))
    sideways = (width - 1 - before[:, 1:]).where(thing, 0)
    torch.testing.assert_close(after[:, 1:].where(thing, 0), sideways)


@given(st.integers(0, 999))
def test_joints_stay_on_what_they_are_on(seed):
    """The colour of a pixel is where it was: what a joint lies on in a view tells which it is."""
    examples = some_things(seed=seed)
    drawn = random_views(4, torch.Generator().manual_seed(seed))
    moved = seen(examples, THINGS, drawn)
    for image in range(4):
        order = [0, 2, 1] if drawn.mirrored[image] else [0, 1, 2]
        before = examples.targets["keypoints"][image, :, order]
        after = moved.targets["keypoints"][image]
        known = after[..., 2] > 0
        assert torch.equal(after[known][:, 2], before[known][:, 2])
        torch.testing.assert_close(
            after[known][:, 3], before[known][:, 3] * drawn.scale[image] ** 2
        )
        assert float(after[~known].abs().sum()) == 0
        for (x, y, *_), (old_x, old_y, *_) in zip(after[known], before[known], strict=True):
            if moved.targets["segment"][image, int(y), int(x)] == IGNORED:
                continue  # the middle of that pixel is outside
            down, right = (moved.inputs[image, axis, int(y), int(x)] for axis in (0, 1))
            reach = 0.5 / float(drawn.scale[image]) + 1e-3
            assert float(down) + 0.5 == pytest.approx(float(old_y), abs=reach)
            assert float(right) + 0.5 == pytest.approx(float(old_x), abs=reach)


@given(st.integers(0, 999))
def test_joints_are_lost_where_they_leave_the_picture_and_only_there(seed):
    examples = some_things(seed=seed)
    drawn = random_views(4, torch.Generator().manual_seed(seed))
    after = seen(examples, THINGS, drawn).targets["keypoints"]
    size = torch.tensor([examples.inputs.shape[-1], examples.inputs.shape[-2]])
    places = 2 * examples.targets["keypoints"][..., :2] / size - 1
    away = (places - drawn.centre[:, None, None]).abs()
    inside = (away <= 1 / drawn.scale[:, None, None, None]).all(-1)
    kept = (inside & (examples.targets["keypoints"][..., 2] > 0)).sum((1, 2))
    assert torch.equal((after[..., 2] > 0).sum((1, 2)), kept)


def test_joints_that_are_seen_twice_as_large_by_hand():
    examples = some_things(1)
    joints = torch.tensor([[[3.5, 9.5, 2.0, 40.0], [20.5, 9.5, 1.0, 40.0], [0.0, 0.0, 0.0, 0.0]]])
    targets = examples.targets | {"keypoints": joints[None]}
    near = views(scale=2.0, centre=(-0.5, 0.5), mirrored=True, count=1)
    found = seen(Examples(examples.inputs, targets), THINGS, near).targets["keypoints"][0, 0]
    # The left lower quarter of 24 by 16 pixels, mirrored: 12 - 3.5 and 9.5 - 8, twice.
    assert found.tolist() == [[17.0, 3.0, 2.0, 160.0], [0, 0, 0, 0], [0, 0, 0, 0]]
