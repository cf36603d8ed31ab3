"""Fitting images of all sizes, with their dense targets, into frames of one size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from consort.domains.scenes.tasks.dense import IGNORED

Bytes = NDArray[np.uint8]
Halves = NDArray[np.float16]
Values = NDArray[Any]

Side = Annotated[int, Field(ge=8, multiple_of=4)]
Sides = tuple[Side, Side]
"""Height and width in pixels."""

MARGIN = (124, 116, 104)
"""The mean colour of ImageNet, which standardised inputs see as zero."""


@dataclass(frozen=True)
class Frame:
    """The position of an image in a frame of fixed size.

    The image is centred. It is scaled down if needed, never up, and keeps its aspect ratio:
    nothing is cropped, and normals keep their directions.
    """

    size: tuple[int, int]
    """Height and width of the frame."""
    shape: tuple[int, int]
    """Height and width of the original image."""

    @property
    def inner(self) -> tuple[int, int]:
        """Height and width of the image in the frame."""
        (height, width), (tall, wide) = self.size, self.shape
        factor = min(1.0, height / tall, width / wide)
        return max(1, round(factor * tall)), max(1, round(factor * wide))

    @property
    def corner(self) -> tuple[int, int]:
        """Row and column of the frame at which the image begins."""
        (height, width), (tall, wide) = self.size, self.inner
        return (height - tall) // 2, (width - wide) // 2

    def image(self, pixels: Bytes) -> Bytes:
        """Places an RGB image (`pixels`, channels last) in the frame, channels first."""
        from PIL import Image

        height, width = self.inner
        small = Image.fromarray(pixels).resize((width, height), Image.Resampling.BILINEAR)
        framed = np.empty((*self.size, 3), dtype=np.uint8)
        framed[:] = MARGIN
        framed[self._place] = np.asarray(small)
        return np.ascontiguousarray(framed.transpose(2, 0, 1))

    def shrunk(self, values: Values) -> Values:
        """Scales the `values` of pixels to the image in the frame, by nearest neighbour."""
        rows, columns = (
            ((2 * np.arange(few) + 1) * many) // (2 * few)
            for few, many in zip(self.inner, values.shape[:2], strict=True)
        )
        found: Values = values[rows[:, None], columns]
        return found

    def placed(self, small: Values, around: int = IGNORED) -> Values:
        """Places values in the frame.

        Args:
            small: Values in the size of the image in the frame.
            around: The value outside the image.

        Returns:
            Values in the size of the frame.
        """
        framed = np.full((*self.size, *small.shape[2:]), around, dtype=small.dtype)
        framed[self._place] = small
        return framed

    def nothing(self) -> Bytes:
        """The target of an image without labels: every pixel is ignored."""
        return np.full(self.size, IGNORED, dtype=np.uint8)

    def labels(self, values: Values) -> Bytes:
        """Scales integer `values` of pixels and places them in the frame."""
        return self.placed(self.shrunk(values).astype(np.uint8))

    def depths(self, metres: Values) -> Halves:
        """Scales and places depths in `metres`, which keep their values; 0 is unknown."""
        return self.placed(self.shrunk(metres).astype(np.float16), around=0)

    def normals(self, vectors: Values) -> Halves:
        """Scales and places `vectors`, normalised, channels first; those near zero are ignored."""
        small = self.shrunk(vectors).astype(np.float32)
        lengths = np.linalg.norm(small, axis=2, keepdims=True)
        unit = np.where(lengths > 0.5, small / np.maximum(lengths, 0.5), np.float32(IGNORED))
        return np.ascontiguousarray(self.placed(unit.astype(np.float16)).transpose(2, 0, 1))

    def lines(self, drawn: NDArray[np.bool_]) -> Bytes:
        """Scales and places lines that are one pixel wide; no line is lost, and they stay thin.

        Args:
            drawn: True on lines, in the size of the original image.

        Returns:
            1 on lines, in the size of the frame.
        """
        small = np.zeros(self.inner, dtype=bool)
        places = (
            where * few // many
            for where, few, many in zip(np.nonzero(drawn), self.inner, drawn.shape, strict=True)
        )
        small[tuple(places)] = True
        return self.placed(small.astype(np.uint8) if self.inner == drawn.shape else _thin(small))

    def borders(self, areas: Values) -> Bytes:
        """Places thin lines where the number of an area differs from the mean of its neighbours.

        Args:
            areas: The number of each pixel's area, in the size of the original image.

        Returns:
            1 on borders, in the size of the frame.
        """
        small = np.pad(self.shrunk(areas).astype(np.int64), 1, mode="reflect")
        around = small[:-2, 1:-1] + small[2:, 1:-1] + small[1:-1, :-2] + small[1:-1, 2:]
        return self.placed(_thin(around != 4 * small[1:-1, 1:-1]))

    @property
    def _place(self) -> tuple[slice, slice]:
        (top, left), (tall, wide) = self.corner, self.inner
        return slice(top, top + tall), slice(left, left + wide)


def _thin(lines: NDArray[np.bool_]) -> Bytes:
    from skimage import morphology

    thin: Bytes = morphology.thin(lines).astype(np.uint8)  # type: ignore[no-untyped-call]
    return thin
