from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from tests.helpers import assert_same
from torch.nn import functional as F

from consort.domains.scenes.metrics.panoptic import NUMBERS
from consort.domains.scenes.synthetic.furniture import CLASSES, JOINTS, PARTS, ROOM, Solids
from consort.domains.scenes.synthetic.joints import HIDDEN, SEEN, figures
from consort.domains.scenes.synthetic.raycasting import Shapes, look, rays
from consort.domains.scenes.synthetic.scenes import synthetic_scenes
from consort.domains.scenes.tasks.dense import IGNORED

SIZE = 96


@cache
def scenes():
    return synthetic_scenes(3, examples=24)


def targets():
    return scenes().examples.targets


def test_the_seed_decides_everything():
    one, same, other = (synthetic_scenes(seed, examples=3, size=32) for seed in (1, 1, 2))
    assert_same(one.examples, same.examples)
    assert not torch.equal(one.examples.inputs, other.examples.inputs)


def test_every_task_has_targets_of_its_kind():
    shapes = {name: (target.dtype, tuple(target.shape)) for name, target in targets().items()}
    maps, small = (24, SIZE, SIZE), torch.uint8
    assert shapes == {
        "segment": (small, maps),
        "parts": (small, maps),
        "saliency": (small, maps),
        "normals": (torch.float16, (24, 3, SIZE, SIZE)),
        "depth": (torch.float16, maps),
        "edges": (small, maps),
        "stuff": (small, maps),
        "panoptic": (torch.int32, maps),
        "instances": (torch.int32, maps),
        "keypoints": (torch.float32, (24, 4, len(JOINTS), 4)),
    }
    assert scenes().tasks.keys() == targets().keys()
    assert scenes().examples.inputs.shape == (24, 3, SIZE, SIZE)


def test_all_classes_and_parts_occur():
    assert set(targets()["segment"].unique().tolist()) == set(range(len(CLASSES)))
    assert set(targets()["parts"].unique().tolist()) == {*range(len(PARTS)), IGNORED}


def test_normals_are_the_slopes_of_the_depth():
    """Two independent outputs: the cross product of neighbouring points is the normal there."""
    depth = targets()["depth"].float()
    points = depth[:, None] * rays(SIZE, 0.75).view(3, SIZE, SIZE)
    right = points[:, :, 1:-1, 2:] - points[:, :, 1:-1, :-2]
    down = points[:, :, 2:, 1:-1] - points[:, :, :-2, 1:-1]
    normal = F.normalize(torch.linalg.cross(right, down, dim=1), dim=1)
    normal = normal * torch.tensor([1.0, 1.0, -1.0])[:, None, None]  # forward is away from us
    segment = targets()["segment"][:, 1:-1, 1:-1]
    edges = F.max_pool2d(targets()["edges"].float(), 3, 1)
    surface = (segment <= 2) & (edges == 0)
    agreement = (normal * targets()["normals"][..., 1:-1, 1:-1].float()).sum(1).abs()[surface]
    assert float((agreement > 0.98).float().mean()) > 0.98
    lengths = targets()["normals"].float().norm(dim=1)
    torch.testing.assert_close(lengths, torch.ones_like(lengths), atol=2e-3, rtol=0)


def test_no_surface_faces_away():
    points = rays(SIZE, 0.75).view(3, SIZE, SIZE) * torch.tensor([1.0, 1.0, -1.0])[:, None, None]
    facing = (targets()["normals"].float() * points).sum(1)
    assert float(facing.max()) < 2e-2


def test_floors_face_up_and_lie_below_ceilings():
    up, segment = targets()["normals"][:, 1].float(), targets()["segment"]
    assert float(up[segment == 1].min()) > 0.9
    assert float(up[segment == 2].max()) < -0.9
    rows = torch.arange(SIZE)[None, :, None].expand_as(segment)
    assert rows[segment == 1].float().mean() > rows[segment == 2].float().mean() + 30


def test_bodies_have_parts_and_images_without_a_body_are_ignored():
    segment, parts = targets()["segment"], targets()["parts"]
    bodies = (segment == CLASSES.index("figure")) | (segment == CLASSES.index("animal"))
    for body, part in zip(bodies, parts, strict=True):
        if body.any():
            assert torch.equal(part > 0, body)
        else:
            assert bool((part == IGNORED).all())


def test_what_stands_out_is_one_thing_and_edges_go_around_it():
    salient = targets()["saliency"].bool()
    assert bool((targets()["segment"][salient] > 2).all())
    edges = targets()["edges"].bool()
    across = salient[:, :, :-1] != salient[:, :, 1:]
    assert bool(edges[:, :, :-1][across].all())
    assert 0.02 < float(edges.float().mean()) < 0.2


def test_stuff_is_the_room_and_all_else_is_one_class():
    segment, stuff = targets()["segment"], targets()["stuff"]
    assert torch.equal(stuff[segment < len(ROOM)], segment[segment < len(ROOM)])
    assert bool((stuff[segment >= len(ROOM)] == len(ROOM)).all())


def test_things_have_numbers_and_the_room_has_none():
    segment, codes = targets()["segment"].long(), targets()["panoptic"].long()
    assert torch.equal(codes // NUMBERS, segment)
    things = segment >= len(ROOM)
    assert torch.equal(codes % NUMBERS > 0, things)
    assert int((codes % NUMBERS).max()) <= 4
    instances = targets()["instances"].long()
    assert torch.equal(instances, torch.where(things, codes - NUMBERS * (len(ROOM) - 1), 0))


def test_edges_go_around_every_thing():
    codes, edges = targets()["panoptic"], targets()["edges"].bool()
    across = codes[:, :, :-1] != codes[:, :, 1:]
    assert bool(edges[:, :, :-1][across].all())


def test_joints_that_are_seen_lie_on_the_right_part_of_their_figure():
    part_of = {"head": "head", "shoulder": "arms", "hand": "arms", "hip": "legs", "foot": "legs"}
    counts = {SEEN: 0, HIDDEN: 0}
    for image, joints in enumerate(targets()["keypoints"]):
        for figure in joints:
            for name, (x, y, seen, area) in zip(JOINTS, figure.tolist(), strict=True):
                if not seen:
                    assert (x, y, area) == (0, 0, 0)
                    continue
                counts[seen] += 1
                assert 0 <= x < SIZE
                assert 0 <= y < SIZE
                if seen == SEEN:
                    part = PARTS[int(targets()["parts"][image, int(y), int(x)])]
                    assert part == part_of[name.split()[-1]]
    assert min(counts.values()) > 10


def test_every_figure_in_sight_has_its_area_and_left_is_left():
    number = CLASSES.index("figure")
    shown = 0
    for codes, joints in zip(targets()["panoptic"], targets()["keypoints"], strict=True):
        figures = codes[codes // NUMBERS == number]
        areas = figures.unique(return_counts=True)[1].tolist()
        found = [int(area) for area in joints[..., 3].amax(1) if area]
        assert set(found) <= set(areas)
        shown += len(found)
        for left, right in zip(joints[:, 1], joints[:, 2], strict=True):
            if left[2] and right[2]:
                assert left[0] <= right[0]
    assert shown > 5


def test_joints_of_a_figure_are_where_geometry_says():
    """One figure two ahead of us, of which only pieces 0, 2 and 3 have joints in sight."""
    middle = np.zeros((6, 3), dtype=np.float32)
    middle[:, 2], middle[2, 0], middle[3, 0], middle[4:, 1] = 2, 0.5, -0.5, -9
    solids = Solids(
        scene=np.zeros(6, dtype=np.int64),
        thing=np.ones(6, dtype=np.int64),
        kind=np.full(6, CLASSES.index("figure")),
        part=np.array([1, 2, 3, 3, 4, 4]),
        box=np.zeros(6, dtype=bool),
        middle=middle,
        half=np.full((6, 3), 0.5, dtype=np.float32),
        turn=np.zeros(6, dtype=np.float32),
    )
    shown = torch.full((1, 60, 60), -1)
    shown[0, 15:50, 30:] = 2
    found = figures(solids, torch.eye(3)[None], shown, most=2)
    # Half a metre at two metres is 0.25 of 0.75: a third of 30 pixels from the middle.
    area = 35.0 * 30
    assert found[0, 0, :3].tolist() == [
        pytest.approx([30, 30, HIDDEN, area]),
        pytest.approx([20, 21, HIDDEN, area]),
        pytest.approx([40, 21, SEEN, area]),
    ]
    assert found[0, 0, 3:5, 2].tolist() == [HIDDEN, SEEN]
    assert float(found[0, 0, 5:].abs().sum()) == float(found[0, 1].abs().sum()) == 0
    nothing = figures(solids, torch.eye(3)[None], torch.full_like(shown, -1), most=2)
    assert float(nothing.abs().sum()) == 0  # a figure that is not in sight


def test_scenes_without_figures_have_no_joints():
    dataset = synthetic_scenes(0, examples=40, size=32, things=1)
    joints, segment = dataset.examples.targets["keypoints"], dataset.examples.targets["segment"]
    without = ~(segment == CLASSES.index("figure")).flatten(1).any(1)
    assert bool(without.any())
    assert float(joints[without].abs().sum()) == 0


def test_a_ball_is_where_geometry_says():
    """A unit sphere four ahead of us: it begins at 3, and is seen under asin(1 / 4)."""
    shapes = Shapes(
        torch.eye(3)[None, None],
        torch.tensor([[[0.0, 0.0, -4.0]]]),
        torch.tensor([[False]]),
        torch.tensor([[True]]),
    )
    box = torch.tensor([[-3.0, -3.0, -3.0]]), torch.tensor([[3.0, 3.0, 9.0]])
    sight = look(shapes, *box, torch.eye(3)[None], 64)
    assert float(sight.depth.min()) == pytest.approx(3, abs=0.01)
    visible = sight.solid[0] == 0
    slope = rays(64, 0.75)[:2].norm(dim=0).view(64, 64)
    assert torch.equal(visible, slope < 1 / 15**0.5)
    torch.testing.assert_close(sight.depth[0, 32, 32], torch.tensor(3.0), atol=0.01, rtol=0)
    assert sight.normal[0, :, 32, 32].tolist() == pytest.approx([0, 0, -1], abs=0.05)


def test_a_cube_is_where_geometry_says():
    shapes = Shapes(
        torch.eye(3)[None, None],
        torch.tensor([[[0.0, 0.0, -4.0]]]),
        torch.tensor([[True]]),
        torch.tensor([[True]]),
    )
    box = torch.tensor([[-3.0, -3.0, -3.0]]), torch.tensor([[3.0, 3.0, 9.0]])
    sight = look(shapes, *box, torch.eye(3)[None], 64)
    front = sight.solid[0] == 0
    slope = rays(64, 0.75)[:2].abs().amax(0).view(64, 64)
    assert torch.equal(front, slope < 1 / 3)
    torch.testing.assert_close(sight.depth[0][front], torch.full((int(front.sum()),), 3.0))
    back = (sight.solid[0] == -6) & ~front
    torch.testing.assert_close(sight.depth[0][back], torch.full((int(back.sum()),), 9.0))


def test_more_things_and_other_sizes_are_possible():
    dataset = synthetic_scenes(0, examples=17, size=32, things=8, noise=0.0)
    assert dataset.examples.inputs.shape == (17, 3, 32, 32)
    assert len(dataset.labels) == 17
