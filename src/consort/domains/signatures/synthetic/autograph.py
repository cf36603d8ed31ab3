"""Random signatures: capitals, small letters and a flourish, in a random handwriting."""

from __future__ import annotations

import numpy as np

from consort.domains.signatures.synthetic.strokes import Strokes


def autograph(rng: np.random.Generator) -> Strokes:
    """Draws how one synthetic user signs.

    Args:
        rng: The source of randomness.

    Returns:
        The strokes of the signature.
    """
    draft = _Draft(rng)
    draft.name(letters=int(rng.integers(3, 7)))
    if rng.random() < 0.65:
        draft.lift_to(draft.x + rng.uniform(0.8, 1.6), rng.uniform(0, 2))
        draft.name(letters=int(rng.integers(2, 6)))
    draft.finish()
    return draft.strokes()


class _Draft:
    """The strokes so far, and the position they lead to: x to the right, y above the base line."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.slant = rng.uniform(-0.35, 0.15)
        self.roundness = rng.uniform(0.3, 1.6)
        self.rise = rng.uniform(0.7, 1.1) + 0.3 * self.slant
        self.run = rng.uniform(0, 0.35)
        self.x = self.y = 0.0
        self.rows: list[tuple[float, float, float, bool]] = []

    def stroke(self, length: float, angle: float, curl: float, down: bool = True) -> None:
        self.rows.append((length, angle, curl, down))
        chord = length * np.sinc(curl / (2 * np.pi))
        self.x += chord * np.cos(angle)
        self.y += chord * np.sin(angle)

    def lift_to(self, x: float, y: float) -> None:
        dx, dy = x - self.x, y - self.y
        curl = self.rng.uniform(-0.4, 0.4)
        self.stroke(float(np.hypot(dx, dy)), float(np.arctan2(dy, dx)), curl, down=False)

    def name(self, letters: int) -> None:
        self.capital()
        if self.rng.random() < 0.5:
            self.lift_to(self.x + self.rng.uniform(0.3, 0.8), self.rng.uniform(0, 0.5))
        for _ in range(letters):
            self.letter()

    def capital(self) -> None:
        rng, height = self.rng, self.rng.uniform(2, 3.2)
        upwards = rng.random() < 0.5
        for _ in range(rng.integers(2, 5)):
            angle = rng.uniform(0.6, 1.5) if upwards else rng.uniform(-2.1, -1.3)
            curl = rng.choice([-1, 1]) * rng.uniform(0.3, 2.8)
            self.stroke(height * rng.uniform(0.6, 1.1), angle + 0.5 * self.slant, curl)
            upwards = not upwards

    def letter(self) -> None:
        """A stroke up, one down to the base line or below, and often one to the next letter."""
        rng = self.rng
        height = rng.uniform(1.8, 2.6) if rng.random() < 0.22 else rng.uniform(0.75, 1.15)
        curl = self.roundness * rng.uniform(0.5, 1.5) * (1 if rng.random() < 0.75 else -1)
        self.stroke(height, self.rise + rng.normal(0, 0.2), curl)
        angle = -1.75 + self.slant + rng.normal(0, 0.18)
        depth = self.y + rng.normal(0, 0.12) + (0.7 if rng.random() < 0.1 else 0)
        self.stroke(max(0.35, depth / abs(np.sin(angle))), angle, curl * rng.uniform(0.3, 1.2))
        if rng.random() < 0.5:
            angle = self.run + rng.normal(0, 0.3)
            self.stroke(rng.uniform(0.2, 0.7), angle, rng.uniform(0.2, 1.2))

    def finish(self) -> None:
        """An underline, a flourish, or nothing."""
        rng, kind = self.rng, self.rng.random()
        if kind < 0.3:
            width = max(self.x, 4.0)
            self.lift_to(width * rng.uniform(-0.05, 0.3), rng.uniform(-1.6, -0.8))
            angle, curl = rng.uniform(-0.05, 0.15), rng.uniform(-0.3, 0.5)
            self.stroke(width * rng.uniform(0.6, 1.1), angle, curl)
        elif kind < 0.6:
            self.stroke(rng.uniform(2, 5), rng.uniform(-0.5, 0.7), rng.uniform(-1.5, 1.5))
            if kind < 0.45:
                self.stroke(rng.uniform(3, 6), rng.uniform(2.6, 3.4), rng.uniform(-0.8, 0.8))

    def strokes(self) -> Strokes:
        length, angle, curl, down = (np.array(column) for column in zip(*self.rows, strict=True))
        gap = np.where(length > 1.4, 0.13, 0.09) * self.rng.uniform(0.75, 1.25, len(length))
        spread = self.rng.uniform(0.2, 0.34, len(length))
        return Strokes(length, angle, curl, gap + 0.04 * ~down, spread, down)
