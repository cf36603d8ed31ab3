"""Ray casting: the first surface of ellipsoids and boxes in rooms along every ray.

Camera coordinates are right, up and forward, with the camera at the origin. Several scenes are
computed at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_NEAREST = 0.2
"""The smallest depth that is rendered."""
VIEW = 0.75
"""The tangent of half the angle of view."""
ROOM_SURFACES = 6
"""Left, floor, behind the camera, right, ceiling, back wall; below zero in `Sight.solid`."""


@dataclass(frozen=True)
class Shapes:
    """Solids as maps to the unit sphere or cube: q = matrix @ ray * depth + offset.

    Row i of every scene is its i-th solid; `there` is false in rows that a scene does not use.
    """

    matrix: Tensor
    offset: Tensor
    box: Tensor
    there: Tensor


@dataclass(frozen=True)
class Sight:
    """What every pixel shows."""

    depth: Tensor
    """The distance along the camera's axis."""
    normal: Tensor
    """The unit normal in camera coordinates."""
    solid: Tensor
    """The row of the solid; below zero, a surface of the room."""
    place: Tensor
    """The position on the surface, for textures."""


def rays(size: int, view: float) -> Tensor:
    """The rays through all pixels.

    Args:
        size: Height and width of the image in pixels.
        view: The tangent of half the angle of view.

    Returns:
        Directions, 3 x pixels, with forward component 1.
    """
    steps = ((torch.arange(size) + 0.5) / size * 2 - 1) * view
    down, right = torch.meshgrid(steps, steps, indexing="ij")
    return torch.stack([right, -down, torch.ones_like(right)]).flatten(1)


def look(shapes: Shapes, lower: Tensor, upper: Tensor, turn: Tensor, size: int) -> Sight:
    """Renders the view of one camera per room.

    Args:
        shapes: The solids in each room.
        lower: The lower corner of each room.
        upper: The upper corner of each room.
        turn: The rotation of each camera, 3x3.
        size: Height and width of the images in pixels.

    Returns:
        What every pixel shows.
    """
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
    """Where rays from inside leave a box: the depth, and which of the six sides."""
    bound = torch.where(directions > 0, upper[..., None], lower[..., None])
    depth, axis = (bound / directions).min(1)
    positive = directions.gather(1, axis[:, None])[:, 0] > 0
    return depth, axis + 3 * positive


def _first_hits(directions: Tensor, offset: Tensor, box: Tensor) -> Tensor:
    """The depth at which each ray enters a unit sphere or cube; infinite if it misses."""
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
    """Unit normals in camera coordinates, and positions on surfaces for textures."""
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
    """The outward normal of the side of the cube that a point is on."""
    axis = local.abs().argmax(-1)
    sign = local.gather(-1, axis[..., None]).sign()
    return torch.eye(3)[axis] * sign
