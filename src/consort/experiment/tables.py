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
    result = dict(table)
    if changes.get("name", result.get("name")) != result.get("name"):
        result = {}
    if changes.get("by", result.get("by")) != result.get("by"):
        result = {key: value for key, value in result.items() if key not in SCHEME_OPTIONS}
    for key, value in changes.items():
        old = result.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            value = merged(old, value)
        result[key] = value
    return result
