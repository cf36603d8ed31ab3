"""Plain values that arrive from another machine: checked as a whole before anything reads them.

A message is described by a class derived from `Arriving`: every key is named, typed and bounded,
and there are no others. What does not fit is `Refused`, in one sentence that quotes no value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from annotated_types import Ge, Le
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from consort.core.limits import Limits
from consort.core.limits import read_json as plain_json
from consort.core.validation import adapter
from consort.errors import Refused

T = TypeVar("T")

_LARGEST = 2**63 - 1
_DEEPEST, _ENTRIES, _LONGEST = 16, 10_000, 10_000  # of a table that arrives


class Arriving(BaseModel):
    """The base class of messages: strict types, no unknown keys, no infinite numbers."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("it holds characters that cannot be printed")
    return text


def _bounded(table: dict[str, Any]) -> dict[str, Any]:
    check_plain(table)
    return table


Line = Annotated[str, Field(max_length=500), AfterValidator(_printable)]
"""A text of one line, which can be shown in a terminal."""
Name = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_printable)]
"""A name of something."""
Count = Annotated[int, Ge(0), Le(_LARGEST)]
"""A whole number that is not negative."""
Number = Annotated[int, Ge(-_LARGEST), Le(_LARGEST)]
"""A whole number."""
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
"""A digest of 16 bytes, as hexadecimal digits."""
PlainTable = Annotated[dict[str, Any], AfterValidator(_bounded)]
"""A table of plain values, bounded in depth, number and size."""


def check_plain(value: Any) -> None:
    """Checks that a value consists of a bounded number of plain values.

    Args:
        value: Text, numbers, truth values, None, and lists, tuples and tables of these.

    Raises:
        ValueError: If it holds something else, or is too deep, too long or too large.
    """
    left, level = _ENTRIES, [value]
    for _ in range(_DEEPEST):
        inner: list[Any] = []
        for item in level:
            inner += _inside(item)
        left -= len(inner)
        if left < 0:
            raise ValueError("it has too many entries")
        level = inner
        if not level:
            return
    raise ValueError("its tables are too deep")


def _inside(value: Any) -> list[Any]:
    """The values in a table or list, and the keys of a table; checks everything else."""
    match value:
        case None | bool():
            return []
        case str() if len(value) <= _LONGEST:
            return []
        case int() if abs(value) <= _LARGEST:
            return []
        case float() if math.isfinite(value):
            return []
        case list() | tuple():
            return list(value)
        case Mapping() if all(isinstance(key, str) for key in value):
            return [*value, *value.values()]
    raise ValueError("it holds something that is not a plain value, or is too long or too large")


def read_arrival(kind: Any, data: object, what: str, most: int = 1 << 20) -> Any:
    """Reads a message that arrived as JSON.

    Args:
        kind: What it must be: a class derived from `Arriving`, or a union of such classes.
        data: The bytes.
        what: What it is called in messages.
        most: The largest number of bytes.

    Returns:
        An object of that kind.

    Raises:
        Refused: If it is anything else.
    """
    if not isinstance(data, bytes):
        raise Refused(f"{what} is missing")
    if len(data) > most:
        raise Refused(f"{what} has {len(data)} bytes, more than {most}")
    plain_json(data, Limits(header=most))  # refuses a key that occurs twice
    try:
        return adapter(kind).validate_json(data)
    except ValidationError as error:
        raise Refused(f"{what} is not valid: {_reason(error)}") from None


def check_table(kind: type[BaseModel], table: Mapping[str, Any], what: str) -> None:
    """Checks a table that was decoded before.

    Args:
        kind: What it must be, a class derived from `Arriving`.
        table: The table.
        what: What it is called in messages.

    Raises:
        Refused: If it is anything else.
    """
    try:
        kind.model_validate(dict(table))
    except ValidationError as error:
        raise Refused(f"{what} is not valid: {_reason(error)}") from None


def _reason(error: ValidationError) -> str:
    """The first thing that is wrong, without the value that arrived."""
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    reason = first["msg"].removeprefix("Value error, ")[:200]
    return f"{place[:80]}: {reason}" if place else reason
