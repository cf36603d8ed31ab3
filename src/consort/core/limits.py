"""How large and how deep a message may be; what is larger is refused before it is decoded."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Any

from consort.errors import Refused

LARGEST = 1e15
"""The largest absolute value of a number in an answer; sums of squares of such numbers over a
hundred million parameters are still finite in single precision."""
MOST_EXAMPLES = 10**9
"""The largest number of training examples that a client can announce."""
LONGEST_NAME = 200
"""Characters of the name of a client, a model, a task, a metric or an entry of an answer."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a message may contain."""

    bytes: int = 4 << 30
    """The bytes of the message."""
    header: int = 32 << 20
    """The bytes of everything but the tensors; as Python objects, they take up to 30 times more."""
    tensors: int = 100_000
    """The number of tensors."""
    items: int = 1_000_000
    """The number of values of all kinds."""
    depth: int = 32
    """How deep values are nested."""
    text: int = 1 << 16
    """The characters of a text."""
    digits: int = 18
    """The characters of a whole number."""
    shared: bool = False
    """Whether a tensor may occur several times, or exactly once and in order."""


MESSAGE = Limits()
"""For messages of which nothing more is known."""
OWN = Limits(
    bytes=sys.maxsize,
    header=sys.maxsize,
    tensors=sys.maxsize,
    items=sys.maxsize,
    depth=100,
    text=sys.maxsize,
    digits=4300,
    shared=True,
)
"""For files and processes of our own."""


def read_json(data: bytes | memoryview, limits: Limits) -> Any:
    """Reads JSON from an untrusted source.

    Args:
        data: The bytes.
        limits: Bounds on their number and on the length of whole numbers. The depth is bounded by
            the parser here, and checked by whoever reads the values.

    Returns:
        The values.

    Raises:
        Refused: If this is no JSON, is too long, has a key twice, or a number that is not accepted.
    """
    if len(data) > limits.header:
        raise Refused(f"the header of the message has {len(data)} bytes, more than {limits.header}")

    def whole(digits: str) -> int:
        if len(digits) > limits.digits:
            raise Refused(f"the message holds a whole number of more than {limits.digits} digits")
        return int(digits)

    try:
        return json.loads(str(data, "utf-8"), object_pairs_hook=_table, parse_int=whole)
    except RecursionError:
        raise Refused("the message is nested too deeply") from None
    except ValueError as error:
        raise Refused(f"the message is damaged ({type(error).__name__})") from error


def _table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise Refused("the message has a key twice")
    return table
