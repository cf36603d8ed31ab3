"""Tables of a recipe: laid over one another, and checked against what they describe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError

from consort.core.registry import did_you_mean
from consort.data.partition.cut import SCHEME_OPTIONS
from consort.errors import UsageError

Table = dict[str, Any]


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


def checked(kind: Any, options: Mapping[str, Any], where: str) -> Any:
    """A dataclass made from a table; what does not fit is said in one sentence."""
    try:
        return TypeAdapter(kind).validate_python(dict(options))
    except ValidationError as error:
        raise UsageError(explain(error, kind, where)) from error


_UNKNOWN = ("unexpected_keyword_argument", "extra_forbidden")


def explain(error: ValidationError, kind: Any, where: str) -> str:
    """The first thing that is wrong with a table, with its key."""
    first = min(error.errors(), key=lambda found: found["type"] not in _UNKNOWN)
    path = [str(part) for part in first["loc"]]
    key = ".".join(filter(None, [where, *path]))
    match first["type"]:
        case "unexpected_keyword_argument" | "extra_forbidden":
            return f"unknown key {key}: {did_you_mean(path[-1], _known_keys(kind, path[:-1]))}"
        case "missing":
            return f"key {key} is missing"
        case "value_error":
            return f"{key}: {first['ctx']['error']}"
    return f"key {key}: {first['msg'].replace('Input', 'it', 1)}, found {first['input']!r}"


def _known_keys(kind: Any, path: Sequence[str]) -> list[str]:
    """The fields of the dataclass at a path inside another, as far as it can be followed."""
    fields = TypeAdapter(kind).json_schema(mode="validation")
    definitions = fields.get("$defs", {})
    node = fields
    for step in ["", *path]:
        node = node.get("properties", {}).get(step, node) if step else node
        node = node.get("items", node)
        node = next((option for option in node.get("anyOf", ()) if "$ref" in option), node)
        if "$ref" in node:
            node = definitions[node["$ref"].rsplit("/", 1)[-1]]
    return list(node.get("properties", {}))
