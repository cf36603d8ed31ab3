"""Numbers from a paper, to stand beside ours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Published:
    """Numbers from a paper, to stand beside ours."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    source: str
    metric: str
    values: dict[str, float]
    """By the algorithm's name in this recipe."""
    percent: bool = True
    """Whether the paper prints 61.2 where we measure 0.612."""
    higher_is_better: bool = True
    """Which way the metric points, if it is not one that stands for a task."""
    group: str = ""
    """Of which clients they are, if not of all."""
    task: str = ""
    """Of which task they are, if not of all that have this metric."""

    @property
    def narrow(self) -> str:
        """Of what in particular they are, in words."""
        return ", ".join(filter(None, (self.group, self.task)))
