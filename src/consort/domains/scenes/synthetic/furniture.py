"""The contents of a room: people, animals and furniture, made of ellipsoids and boxes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Numbers = NDArray[np.int64]

ROOM = ("wall", "floor", "ceiling")
"""The classes of the room itself (stuff)."""
CLASSES = (*ROOM, "figure", "animal", "ball", "crate", "table", "lamp")
"""All classes; those after the room's are things."""
PARTS = ("background", "head", "body", "arms", "legs")
"""The parts of bodies."""

Piece = tuple[bool, tuple[float, float, float], tuple[float, float, float], int]
"""Whether it is a box, its centre relative to the floor, half its sizes, and its part."""

HEAD, _BODY, _ARMS, _LEGS = 1, 2, 3, 4
THINGS: dict[str, tuple[Piece, ...]] = {
    "figure": (
        (False, (0, 1.55, 0), (0.15, 0.19, 0.15), HEAD),
        (False, (0, 1.05, 0), (0.24, 0.36, 0.16), _BODY),
        (False, (-0.32, 1.05, 0), (0.08, 0.34, 0.08), _ARMS),
        (False, (0.32, 1.05, 0), (0.08, 0.34, 0.08), _ARMS),
        (False, (-0.12, 0.4, 0), (0.1, 0.42, 0.1), _LEGS),
        (False, (0.12, 0.4, 0), (0.1, 0.42, 0.1), _LEGS),
    ),
    "animal": (
        (False, (0, 0.5, 0), (0.45, 0.2, 0.2), _BODY),
        (False, (0.5, 0.72, 0), (0.19, 0.16, 0.15), HEAD),
        (False, (0.3, 0.17, 0.1), (0.07, 0.2, 0.07), _LEGS),
        (False, (0.3, 0.17, -0.1), (0.07, 0.2, 0.07), _LEGS),
        (False, (-0.3, 0.17, 0.1), (0.07, 0.2, 0.07), _LEGS),
        (False, (-0.3, 0.17, -0.1), (0.07, 0.2, 0.07), _LEGS),
    ),
    "ball": ((False, (0, 0.35, 0), (0.35, 0.35, 0.35), 0),),
    "crate": ((True, (0, 0.4, 0), (0.4, 0.4, 0.4), 0),),
    "table": (
        (True, (0, 0.72, 0), (0.7, 0.05, 0.4), 0),
        (True, (-0.6, 0.34, 0), (0.05, 0.34, 0.35), 0),
        (True, (0.6, 0.34, 0), (0.05, 0.34, 0.35), 0),
    ),
    "lamp": (
        (True, (0, 0.6, 0), (0.04, 0.6, 0.04), 0),
        (False, (0, 1.35, 0), (0.3, 0.22, 0.3), 0),
    ),
}
"""The pieces of each thing, in metres."""
JOINTS: dict[str, tuple[int, float]] = {
    "head": (0, 0.0),
    "left shoulder": (2, 0.9),
    "right shoulder": (3, 0.9),
    "left hand": (2, -0.9),
    "right hand": (3, -0.9),
    "left hip": (4, 0.9),
    "right hip": (5, 0.9),
    "left foot": (4, -0.9),
    "right foot": (5, -0.9),
}
"""The piece of a figure that a joint is in, and its height there from -1 (bottom) to 1 (top)."""


@dataclass(frozen=True)
class Solids:
    """Ellipsoids and boxes of several scenes, one row each, sorted by scene."""

    scene: Numbers
    """The scene that it belongs to."""
    thing: Numbers
    """The number of its thing within the scene, from 1."""
    kind: Numbers
    """The class of the thing."""
    part: Numbers
    """The part of the body, 0 for other things."""
    box: NDArray[np.bool_]
    middle: Floats
    """The centre in room coordinates."""
    half: Floats
    """Half the size along each axis."""
    turn: Floats
    """The rotation around the vertical axis in radians."""


def furnished(rng: np.random.Generator, floor: Floats, depth: Floats, most: int) -> Solids:
    """Puts one to `most` things on the floor of every room, at different distances.

    Args:
        rng: The source of randomness.
        floor: How far below the camera the floor of each room is.
        depth: How far from the camera its back wall is.
        most: The largest number of things in a room.

    Returns:
        The solids of all rooms.
    """
    rows = []
    names = list(THINGS)
    for scene in range(len(floor)):
        count = int(rng.integers(1, most + 1))
        away = np.sort(rng.uniform(1.4, depth[scene] - 0.5, count))
        for thing, distance in enumerate(away, start=1):
            name = names[int(rng.choice(len(names), p=_SHARES))]
            size, turn = rng.uniform(0.75, 1.25), rng.uniform(0, 2 * np.pi)
            spot = rng.uniform(-0.45, 0.45) * distance
            base, kind = np.array([spot, -floor[scene], distance]), CLASSES.index(name)
            for box, middle, half, part in THINGS[name]:
                place = base + size * _turned(np.array(middle), turn)
                rows.append((scene, thing, kind, part, box, place, size * np.array(half), turn))
    scenes, things, kinds, parts, boxes, *exact = map(np.array, zip(*rows, strict=True))
    middles, halves, turns = (column.astype(np.float32) for column in exact)
    return Solids(scenes, things, kinds, parts, boxes, middles, halves, turns)


_SHARES = np.array([0.3, 0.15, 0.15, 0.15, 0.15, 0.1])
"""The probability of each kind of thing."""


def _turned(point: NDArray[np.float64], turn: float) -> NDArray[np.float64]:
    """Rotates a point around the vertical axis."""
    x, y, z = point
    return np.array([np.cos(turn) * x + np.sin(turn) * z, y, np.cos(turn) * z - np.sin(turn) * x])
