"""The header of a client's answer, as the server reads it."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Ge, Le

from consort.core.arrival import Arriving, Count, Line, read_arrival


class AnswerHeader(Arriving):
    """What a client says beside the content of its answer."""

    error: Line
    """Why there is no content; empty if there is."""
    seconds: Annotated[float, Ge(0), Le(1e9)]
    """The time that the call took."""
    flops: Count
    """The floating-point operations of the call, if they were counted."""
    late: bool
    """Whether the answer came after the deadline."""


def read_answer_header(data: object) -> AnswerHeader:
    """Reads the header of an answer.

    Args:
        data: The bytes that arrived, if any.

    Raises:
        Refused: If it is not the header of an answer.
    """
    header: AnswerHeader = read_arrival(AnswerHeader, data, "the header", most=1 << 12)
    return header
