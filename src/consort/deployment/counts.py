"""Small counts: rounded or left out before they leave a client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from consort.core.bounds import NonNegativeInt, PositiveInt
from consort.core.messages import Payload

_COUNTS = ("examples", "labels", "n")
"""Entries of answers that count examples: of a client, of each of its classes, of a score."""
_SIZES = ("train", "validation", "test")
"""Entries of a client's description that count examples."""


@dataclass(frozen=True)
class Counts:
    """The table `counts` of a client's policy: how exactly it tells how many examples it has."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    round_to: PositiveInt = 1
    """Counts are rounded to multiples of this, and to this itself rather than to 0."""
    suppress_below: NonNegativeInt = 0
    """Smaller counts are sent as 0, and scores over fewer examples are not sent."""

    def told(self, count: int) -> int:
        """What is told in the place of a `count`."""
        if count <= 0 or count < self.suppress_below:
            return 0
        return max(1, round(count / self.round_to)) * self.round_to

    def answer(self, content: Payload) -> Payload:
        """An answer with its counts changed, in scores as well.

        Args:
            content: The answer; it is not changed itself.
        """
        if self == Counts():
            return content
        return {
            key: self._told(value) if key in _COUNTS else self._within(value)
            for key, value in content.items()
            if not self._is_suppressed(value)
        }

    def description(self, description: Mapping[str, Any]) -> dict[str, Any]:
        """What a client tells about itself, with its sizes changed.

        Args:
            description: The description; it is not changed itself.
        """
        sizes = {key: self.told(description[key]) for key in _SIZES if key in description}
        return {**description, **sizes}

    def _within(self, value: Any) -> Any:
        return self.answer(value) if type(value) is dict else value

    def _told(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            told = [float(self.told(int(count))) for count in value.flatten()]
            return torch.tensor(told, dtype=value.dtype).view(value.shape)
        if isinstance(value, Mapping):
            return {key: self._told(count) for key, count in value.items()}
        return self.told(value) if type(value) is int else value

    def _is_suppressed(self, value: Any) -> bool:
        """Whether a value is the scores of a split with too few examples."""
        scores = isinstance(value, Mapping) and "tasks" in value and type(value.get("n")) is int
        return scores and value["n"] < self.suppress_below
