"""What a camera sees of ellipsoids and boxes in rooms: the first surface along every ray.

Camera coordinates are right, up and forward; the camera is the origin. Everything is computed for
several scenes at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_NEAREST = 0.2
VIEW = 0.75
"""The tangent of half the angle that is seen."""
ROOM_SURFACES = 6
"""Left, floor, behind, right, ceiling, back: numbered below zero in `Sight.solid`."""


@dataclass(frozen=True)
class Shapes:
    """Solids as maps to the unit sphere or cube: q = matrix @ ray * depth + offset.

    Row i of every scene is its i-th solid; where a scene has fewer, `there` is false.
    """

    matrix: Tensor
    offset: Tensor
    box: Tensor
    there: Tensor


@dataclass(frozen=True)
class Sight:
    """For every pixel the depth, the unit normal, the solid and the place on its surface."""

    depth: Tensor
    normal: Tensor
    solid: Tensor
    """The row of the solid; below zero, the surface of the room."""
    place: Tensor


def rays(size: int, view: float) -> Tensor:
    """Through every pixel, as 3 by pixels with forward component 1; `view` is the tangent."""
    steps = ((torch.arange(size) + 0.5) / size * 2 - 1) * view
    down, right = torch.meshgrid(steps, steps, indexing="ij")
    return torch.stack([right, -down, torch.ones_like(right)]).flatten(1)


def look(shapes: Shapes, lower: Tensor, upper: Tensor, turn: Tensor, size: int) -> Sight:
    """What cameras turned by `turn` (3x3 each) see in rooms from `lower` to `upper`."""
    straight = rays(size, VIEW)
    depth, surface = _walls(turn @ straight, lower, upper)
    solid = -1 - surface
    for row in range(shapes.matrix.shape[1]):
        scenes = shapes.there[:, row].nonzero()[:, 0]
        matrix, offset = shapes.matrix[scenes, row], shapes.offset[scenes, row]
        found = _first_hits(matrix @ straight, offset[..., None], shapes.box[scenes, row])
        nearer = found < depth[scenes]
        depth[scenes] = torch.where(nearer, found, depth[scenes])
        solid[scenes] = torch.where(nearer, row, solid[scenes])
    normal, place = _surfaces(shapes, turn, straight, depth, solid)
    flat, maps = (len(turn), size, size), (len(turn), 3, size, size)
    return Sight(depth.view(flat), normal.reshape(maps), solid.view(flat), place.reshape(maps))


def _walls(directions: Tensor, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """Where rays from inside leave a box: the depth, and which of six sides it is."""
    bound = torch.where(directions > 0, upper[..., None], lower[..., None])
    depth, axis = (bound / directions).min(1)
    positive = directions.gather(1, axis[:, None])[:, 0] > 0
    return depth, axis + 3 * positive


def _first_hits(directions: Tensor, offset: Tensor, box: Tensor) -> Tensor:
    """The depth at which each ray enters a unit sphere or cube; infinite if it does not."""
    hits = torch.full_like(directions[:, 0], torch.inf)
    hits[~box] = _into_spheres(directions[~box], offset[~box])
    hits[box] = _into_cubes(directions[box], offset[box])
    return hits.where(hits > _NEAREST, torch.inf)


def _into_spheres(directions: Tensor, offset: Tensor) -> Tensor:
    a = directions.square().sum(1)
    b = (directions * offset).sum(1)
    c = offset.square().sum(1) - 1
    rest = b.square() - a * c
    return torch.where(rest > 0, (-b - rest.clamp(min=0).sqrt()) / a, torch.inf)


def _into_cubes(directions: Tensor, offset: Tensor) -> Tensor:
    one, other = (-1 - offset) / directions, (1 - offset) / directions
    enter = torch.minimum(one, other).amax(1)
    leave = torch.maximum(one, other).amin(1)
    return torch.where(enter < leave, enter, torch.inf)


def _surfaces(
    shapes: Shapes, turn: Tensor, straight: Tensor, depth: Tensor, solid: Tensor
) -> tuple[Tensor, Tensor]:
    """Unit normals in camera coordinates, and places on surfaces by which textures are made."""
    row = solid.clamp(min=0)
    count = row.shape[1]
    matrix = shapes.matrix.flatten(2).gather(1, row[..., None].expand(-1, -1, 9))
    matrix = matrix.view(-1, count, 3, 3)
    offset = shapes.offset.gather(1, row[..., None].expand(-1, -1, 3))
    points = straight.T * depth[..., None]
    local = (matrix @ points[..., None])[..., 0] + offset
    faces = _face(local)
    across = torch.where(shapes.box.gather(1, row)[..., None], faces, local)
    normal = (across[..., None, :] @ matrix)[..., 0, :]
    inside = solid < 0
    side = torch.where(inside, -1 - solid, 0)
    inward = -torch.eye(3)[side % 3] * torch.where(side > 2, 1.0, -1.0)[..., None]
    normal = torch.where(inside[..., None], inward @ turn, normal)
    normal = torch.nn.functional.normalize(normal, dim=-1)
    world = points @ turn.transpose(1, 2)
    place = torch.where(inside[..., None], world, local)
    return normal.transpose(1, 2), place.transpose(1, 2)


def _face(local: Tensor) -> Tensor:
    """The outward axis of the cube's side that a point is on."""
    axis = local.abs().argmax(-1)
    sign = local.gather(-1, axis[..., None]).sign()
    return torch.eye(3)[axis] * sign
