"""The positions of figures' joints in the image."""

from __future__ import annotations

import torch
from torch import Tensor

from consort.domains.scenes.synthetic.furniture import CLASSES, HEAD, JOINTS, Solids
from consort.domains.scenes.synthetic.raycasting import VIEW

HIDDEN, SEEN = 1.0, 2.0
"""The visibility of a joint; 0 if it is outside the image."""
MIRRORED = (0, 2, 1, 4, 3, 6, 5, 8, 7)
"""For each joint its counterpart on the other side."""

_PIECE = torch.tensor([piece for piece, _ in JOINTS.values()])
_HEIGHT = torch.tensor([height for _, height in JOINTS.values()])


def figures(solids: Solids, turn: Tensor, shown: Tensor, most: int) -> Tensor:
    """Projects the joints of all figures into the image.

    Args:
        solids: The solids of all scenes.
        turn: The camera rotation of each scene.
        shown: The number of the solid that each pixel shows, negative for the room.
        most: The number of figures per scene in the result.

    Returns:
        Scenes x figures x joints x (x, y, visibility, area); zero where there is none.
    """
    kind, part, thing, scene = (
        torch.from_numpy(column)
        for column in (solids.kind, solids.part, solids.thing, solids.scene)
    )
    heads = ((kind == CLASSES.index("figure")) & (part == HEAD)).nonzero()[:, 0]
    scene, own = scene[heads], shown[scene[heads]]
    area = ((own >= 0) & (thing[own] == thing[heads][:, None, None])).flatten(1).sum(1)
    places, pieces = _joints(solids, heads, turn[scene], shown.shape[-1])
    seen = _visibility(places, pieces, own).where(area[:, None] > 0, 0.0)
    rows = torch.cat([places, torch.stack([seen, area[:, None].expand_as(seen)], -1)], -1)
    target = torch.zeros(len(shown), most, *rows.shape[1:])
    number = torch.arange(len(scene)) - torch.searchsorted(scene, scene)
    target[scene, number] = rows.where(seen[..., None] > 0, 0.0)
    return target


def _joints(solids: Solids, heads: Tensor, turn: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """The x and y of every joint in pixels, and the piece that it belongs to.

    Figures have no face, so left and right are as seen in the image.
    """
    pieces = heads[:, None] + _PIECE
    up = torch.tensor([0.0, 1.0, 0.0]) * _HEIGHT[:, None]
    room = torch.from_numpy(solids.middle)[pieces] + up * torch.from_numpy(solids.half)[pieces]
    right, above, ahead = (room @ turn).unbind(-1)
    places = (torch.stack([right, -above], -1) / (ahead[..., None] * VIEW) + 1) / 2 * size
    turned = places[:, 1, 0] > places[:, 2, 0]
    order = torch.where(turned[:, None], torch.tensor(MIRRORED), torch.arange(len(JOINTS)))
    return places.gather(1, order[..., None].expand_as(places)), pieces.gather(1, order)


def _visibility(places: Tensor, pieces: Tensor, shown: Tensor) -> Tensor:
    """A joint is visible if its pixel shows the piece that it belongs to."""
    inside = ((places >= 0) & (places < shown.shape[-1])).all(-1)
    right, down = places.where(inside[..., None], 0.0).long().unbind(-1)
    there = shown[torch.arange(len(shown))[:, None], down, right]
    return torch.where(there == pieces, SEEN, HIDDEN).where(inside, 0.0)
