"""Synthetic images of furnished rooms with dense targets: the counterpart of PASCAL-Context."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from consort.core.randomness import derive
from consort.data.dataset import Dataset
from consort.data.examples import Examples
from consort.data.pixels import scale
from consort.domains.scenes.metrics.panoptic import NUMBERS
from consort.domains.scenes.synthetic.furniture import (
    CLASSES,
    PARTS,
    ROOM,
    Numbers,
    Solids,
    furnished,
)
from consort.domains.scenes.synthetic.joints import MIRRORED, figures
from consort.domains.scenes.synthetic.raycasting import ROOM_SURFACES, Shapes, Sight, look
from consort.domains.scenes.tasks.dense import IGNORED
from consort.domains.scenes.tasks.edges import Edges
from consort.domains.scenes.tasks.geometry import Depth, Normals
from consort.domains.scenes.tasks.keypoints import KeyPoints
from consort.domains.scenes.tasks.panoptic import Instances, Panoptic
from consort.domains.scenes.tasks.segmentation import Saliency, Segmentation
from consort.tasks import Task

Size = Annotated[int, Field(ge=32, multiple_of=4)]

_CHUNK = 16
"""Scenes rendered together."""
_WALL, _FLOOR, _CEILING = 0, 1, 2
_ROOM_CLASS = torch.tensor([_WALL, _FLOOR, _WALL, _WALL, _CEILING, _WALL])
_SIGMAS = (0.035, 0.079, 0.079, 0.062, 0.062, 0.107, 0.107, 0.089, 0.089)
"""COCO's values for ears, shoulders, wrists, hips and ankles."""


def synthetic_scenes(
    seed: int,
    *,
    examples: Annotated[int, Field(ge=1)] = 600,
    size: Size = 96,
    things: Annotated[int, Field(ge=1, le=8)] = 4,
    noise: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.03,
) -> Dataset:
    """People, animals and furniture in a room, with ten tasks that have targets per pixel.

    Args:
        seed: The seed of all random choices.
        examples: The number of images.
        size: The side of the images in pixels.
        things: The largest number of things in a room.
        noise: The standard deviation of the pixel noise, for values from 0 to 1.

    Returns:
        The data set; its label for partitioning is the class of the nearest thing.
    """
    rng = np.random.default_rng(derive(seed, "synthetic_scenes"))
    parts = [
        _chunk(rng, min(_CHUNK, examples - first), size, things, noise)
        for first in range(0, examples, _CHUNK)
    ]
    whole = Examples.concatenate(parts)
    tasks: dict[str, Task] = {
        "segment": Segmentation(len(CLASSES)),
        "parts": Segmentation(len(PARTS)),
        "saliency": Saliency(),
        "normals": Normals(),
        "depth": Depth(),
        "edges": Edges(),
        "stuff": Segmentation(len(ROOM) + 1),
        "panoptic": Panoptic(len(CLASSES), stuff=len(ROOM), sigma=size / 32),
        "instances": Instances(1 + len(CLASSES) - len(ROOM), sigma=size / 32),
        "keypoints": KeyPoints(_SIGMAS, MIRRORED, sigma=size / 24, emphasis=20),
    }
    return Dataset(
        name="synthetic_scenes",
        examples=whole,
        tasks=tasks,
        labels=_main_class(whole.targets["segment"], whole.targets["saliency"]),
        prepare=scale,
    )


def _chunk(rng: np.random.Generator, count: int, size: int, things: int, noise: float) -> Examples:
    """Draws, renders and labels some scenes."""
    lower = -rng.uniform([2.0, 1.2, 1.0], [4.0, 1.7, 1.1], (count, 3)).astype(np.float32)
    upper = rng.uniform([2.0, 0.9, 3.5], [4.0, 1.6, 6.0], (count, 3)).astype(np.float32)
    solids = furnished(rng, -lower[:, 1], upper[:, 2], things)
    turn = _turns(rng.uniform([-0.35, -0.12], [0.35, 0.2], (count, 2)))
    shapes, rows = _shapes(solids, count, turn)
    sight = look(shapes, torch.from_numpy(lower), torch.from_numpy(upper), turn, size)
    number = rows.gather(1, sight.solid.clamp(min=0).flatten(1)).view_as(sight.solid)
    labels = _labels(solids, number, sight)
    shown = torch.where(sight.solid < 0, -1, number)
    labels["keypoints"] = figures(solids, turn, shown, things)
    image = _painted(rng, rows, sight, labels["segment"])
    grain = rng.standard_normal(image.shape, dtype=np.float32) * np.float32(noise)
    pixels = ((image + torch.from_numpy(grain)).clamp(0, 1) * 255).round().to(torch.uint8)
    return Examples(pixels, labels)


def _turns(angles: NDArray[np.float64]) -> Tensor:
    """Rotations from camera to room coordinates: first pitch, then yaw."""
    (sine, sine_up), (cosine, cosine_up) = np.sin(angles).T, np.cos(angles).T
    zero, one = np.zeros_like(sine), np.ones_like(sine)
    level = np.array([[cosine, zero, sine], [zero, one, zero], [-sine, zero, cosine]])
    pitch = np.array([[one, zero, zero], [zero, cosine_up, -sine_up], [zero, sine_up, cosine_up]])
    return torch.from_numpy(np.einsum("ijn,jkn->nik", level, pitch).astype(np.float32))


def _shapes(solids: Solids, count: int, turn: Tensor) -> tuple[Shapes, Tensor]:
    """The solids of every scene in rows, and the number of each row among all solids."""
    scene = torch.from_numpy(solids.scene)
    order = torch.arange(len(scene)) - torch.searchsorted(scene, scene)
    most = int(order.max()) + 1
    numbers = torch.zeros(count, most, dtype=torch.int64)
    there = torch.zeros(count, most, dtype=torch.bool)
    numbers[scene, order], there[scene, order] = torch.arange(len(scene)), True
    sine, cosine = torch.from_numpy(np.sin(solids.turn)), torch.from_numpy(np.cos(solids.turn))
    zero, one = torch.zeros_like(sine), torch.ones_like(sine)
    back = torch.stack([cosine, zero, -sine, zero, one, zero, sine, zero, cosine], 1).view(-1, 3, 3)
    to_unit = back / torch.from_numpy(solids.half)[..., None]
    offset = -(to_unit @ torch.from_numpy(solids.middle)[..., None])[..., 0]
    box = torch.from_numpy(solids.box)
    return Shapes((to_unit @ turn[scene])[numbers], offset[numbers], box[numbers], there), numbers


def _labels(solids: Solids, number: Tensor, sight: Sight) -> dict[str, Tensor]:
    """The targets of every pixel; `number` is that of the solid it shows, if any."""
    room = sight.solid < 0
    side = torch.where(room, -1 - sight.solid, 0)
    kind, part, thing = (
        torch.from_numpy(column)[number] for column in (solids.kind, solids.part, solids.thing)
    )
    parts = torch.where(room, 0, part)
    parts = torch.where((parts > 0).flatten(1).any(1)[:, None, None], parts, IGNORED)
    surface = torch.where(room, side, ROOM_SURFACES + thing)
    towards_us = sight.normal * torch.tensor([1.0, 1.0, -1.0])[:, None, None]
    segment = torch.where(room, _ROOM_CLASS[side], kind)
    thing_kind = segment - len(ROOM) + 1
    return {
        "segment": segment.to(torch.uint8),
        "parts": parts.to(torch.uint8),
        "saliency": (~room & (thing == _nearest(thing, room))).to(torch.uint8),
        "normals": towards_us.half(),
        "depth": sight.depth.half(),
        "edges": _borders(surface).to(torch.uint8),
        "stuff": segment.clamp(max=len(ROOM)).to(torch.uint8),
        "panoptic": (segment * NUMBERS + thing.where(~room, 0)).int(),
        "instances": (thing_kind * NUMBERS + thing).where(~room, 0).int(),
    }


def _nearest(thing: Tensor, room: Tensor) -> Tensor:
    """The number of the nearest visible thing; things are numbered by distance."""
    return torch.where(room, 99, thing).flatten(1).amin(1)[:, None, None]


def _borders(surface: Tensor) -> Tensor:
    """Pixels whose right or lower neighbour is on another surface."""
    edges = torch.zeros_like(surface, dtype=torch.bool)
    edges[:, :, :-1] |= surface[:, :, :-1] != surface[:, :, 1:]
    edges[:, :-1] |= surface[:, :-1] != surface[:, 1:]
    return edges


_COLOURS = torch.tensor(
    [
        [0.75, 0.7, 0.6],
        [0.5, 0.38, 0.25],
        [0.85, 0.85, 0.85],
        [0.8, 0.5, 0.4],
        [0.45, 0.35, 0.2],
        [0.8, 0.25, 0.25],
        [0.6, 0.45, 0.2],
        [0.45, 0.3, 0.2],
        [0.85, 0.8, 0.4],
    ]
)
"""The typical colour of each class; every object varies from it."""


def _painted(rng: np.random.Generator, rows: Tensor, sight: Sight, kinds: Tensor) -> Tensor:
    """Colours the scenes: a pattern of two colours on every surface, lit by one lamp."""
    count, most = rows.shape
    slots = most + ROOM_SURFACES
    slot = torch.where(sight.solid < 0, most - 1 - sight.solid, sight.solid)

    def drawn(*shape: int) -> Tensor:
        """One random number from -1 to 1 per surface, looked up for every pixel."""
        values = rng.uniform(-1, 1, (count, slots, *shape)).astype(np.float32)
        picked = torch.from_numpy(values)[torch.arange(count)[:, None, None], slot]
        return picked.movedim(-1, 1) if shape else picked[:, None]

    base = _COLOURS[kinds.long()].movedim(-1, 1) + 0.25 * drawn(3)
    waves = torch.sin((sight.place * (4 + 6 * drawn(3).abs())).sum(1, keepdim=True) + 3 * drawn())
    blocks = torch.sin(sight.place * (5 + 5 * drawn().abs())).prod(1, keepdim=True).sign()
    pattern = torch.where(drawn() > 0, waves, blocks) * (0.02 + 0.2 * drawn().abs())
    lamps = rng.uniform([-1, 0.2, -1.5], [1, 1, -0.5], (count, 3)).astype(np.float32)
    lamp = torch.nn.functional.normalize(torch.from_numpy(lamps), dim=1)[..., None, None]
    light = 0.55 + 0.5 * (sight.normal * lamp).sum(1, keepdim=True).clamp(min=0)
    return (base + pattern).clamp(0, 1) * light / (1 + 0.03 * sight.depth[:, None])


def _main_class(segment: Tensor, salient: Tensor) -> Numbers:
    """The class of the nearest thing, for label skew; 0 if nothing is visible."""
    seen = torch.where(salient == 1, segment, 0).flatten(1)
    labels: Numbers = seen.amax(1).long().numpy()
    return labels
