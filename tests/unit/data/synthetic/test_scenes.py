from __future__ import annotations

from functools import cache

import pytest
import torch
from tests.helpers import assert_same
from torch.nn import functional as F

from consort.data.synthetic.furniture import CLASSES, PARTS
from consort.data.synthetic.raycasting import Shapes, look, rays
from consort.data.synthetic.scenes import synthetic_scenes
from consort.tasks.dense import IGNORED

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
