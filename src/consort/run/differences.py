"""Where two trees of plain values differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def differences(before: Any, now: Any, place: str = "") -> Iterator[tuple[str, Any, Any]]:
    """The places in which two trees of plain values differ, each with both values.

    Args:
        before: One tree.
        now: The other.
        place: The place of both in a larger tree.
    """
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in {**before, **now}:
            inner = f"{place}.{key}" if place else str(key)
            yield from differences(before.get(key), now.get(key), inner)
    elif before != now:
        yield place, before, now
