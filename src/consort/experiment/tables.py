"""Tables of a recipe, laid over one another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from consort.core.validation import Table
from consort.data.partition.cut import SCHEME_OPTIONS


def merged(table: Mapping[str, Any], changes: Mapping[str, Any]) -> Table:
    """A table with another laid over it, key by key.

    Options belong to what they are options of: a change of `name` (of data, of a model) takes
    nothing over from the old table, and a change of `by` (of a partition) not the old scheme's.
    """
    lost = _lost(table, changes)
    result = {key: value for key, value in table.items() if key not in lost}
    for key, value in changes.items():
        old = result.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            value = merged(old, value)
        result[key] = value
    return result


def dropped(
    table: Mapping[str, Any], changes: Mapping[str, Any], place: str = ""
) -> dict[str, Any]:
    """What `merged` leaves out, and nothing replaces: options of what is no longer there.

    Args:
        table: The table.
        changes: What is laid over it.
        place: The key of both in a larger table.

    Returns:
        By whole key, such as `data.size`, the values that are gone.
    """
    lost = {f"{place}{key}": table[key] for key in _lost(table, changes) - changes.keys() - _KINDS}
    for key, value in changes.items():
        if isinstance(table.get(key), dict) and isinstance(value, dict):
            lost |= dropped(table[key], value, f"{place}{key}.")
    return lost


_KINDS = {"name", "by"}
"""Keys that say what the other keys of a table are options of."""


def _lost(table: Mapping[str, Any], changes: Mapping[str, Any]) -> set[str]:
    if changes.get("name", table.get("name")) != table.get("name"):
        return set(table)
    if changes.get("by", table.get("by")) != table.get("by"):
        return {key for key in table if key in SCHEME_OPTIONS}
    return set()
