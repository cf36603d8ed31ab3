"""Everything that arrives at a client or at the server, described once and checked before use.

The header of an answer is in `consort.engines.answer_header`; the contents of calls and answers are
decoded and checked by `consort.core.wire`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from annotated_types import Ge, Le
from pydantic import AfterValidator, ConfigDict, Field

from consort.core.arrival import (
    Arriving,
    Count,
    Digest,
    Line,
    Name,
    Number,
    PlainTable,
    check_plain,
    check_table,
    read_arrival,
)
from consort.errors import Refused

_MOST_DRAWS = 10_000
_MOST_STEPS = 1_000_000


def _session(text: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{32}", text):
        raise ValueError("the session id of the run is not valid")
    return text


Position = Annotated[int, Ge(0), Le(_MOST_STEPS)]
"""A round, a step or a turn of a run."""
Method = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.]{0,99}$")]


class Proposal(Arriving):
    """A study as it is proposed: see `consort.deployment.study.Study`."""

    recipe: PlainTable
    algorithm: Name
    seed: Number
    version: Line
    digest: Digest
    title: Line = ""


class _Message(Arriving):
    session: Annotated[str, AfterValidator(_session)]
    """The name of the run, from which the client makes the name of a folder."""
    number: Annotated[int, Ge(1), Le(2**53)]
    """Larger than that of any message before."""
    seconds: Annotated[float, Ge(0), Le(1e9)]
    """How long the server waits for the answer."""
    known: bool
    """Whether the client must remember the run."""
    study: Proposal
    """What the client is asked to take part in."""
    told: Digest | None
    """A digest of what the client told about itself when the run began."""


class Describe(_Message):
    """The server asks who the client is."""

    kind: Literal["describe"]


class Initial(_Message):
    """The server asks for initial weights."""

    kind: Literal["initial"]
    companion: PlainTable | None
    """A second model beside the client's own."""
    draw: Annotated[int, Ge(0), Le(_MOST_DRAWS)]
    """Which draw of the random weights."""


class Ask(_Message):
    """The server calls a method of the algorithm."""

    kind: Literal["call"]
    companion: PlainTable | None
    """A second model beside the client's own."""
    call: tuple[Name, Method, Position, Position, Position]
    """Client, method, round, step and turn: see `consort.core.messages.Call`."""
    counted: tuple[Position, Position] | None
    """Round and step of the client's last answer that counted."""


Message = Annotated[Describe | Initial | Ask, Field(discriminator="kind")]


class _Measured(Arriving):
    """A task as the server knows it; evaluations of plug-ins may say more about theirs."""

    model_config = ConfigDict(extra="ignore")

    metric: Name
    higher_is_better: bool


class _Model(Arriving):
    """The name of a model; its options have other keys."""

    model_config = ConfigDict(extra="ignore")

    name: Name


class Description(Arriving):
    """What a client tells about itself."""

    model: Annotated[PlainTable, AfterValidator(_Model.model_validate)]
    tasks: Annotated[dict[Name, _Measured], Field(min_length=1, max_length=1000)]
    parameters: Annotated[int, Ge(1), Le(10**12)]
    initial: Digest
    train: Count
    validation: Count
    test: Count
    measured: Annotated[dict[Name, _Measured], Field(max_length=1000, default_factory=dict)]
    local: Annotated[PlainTable, Field(default_factory=dict)]


def read_message(data: object) -> Describe | Initial | Ask:
    """Reads the header of a message to a client.

    Args:
        data: The bytes that arrived, if any.

    Raises:
        Refused: If it is no message.
    """
    message: Describe | Initial | Ask = read_arrival(Message, data, "the message")
    return message


def read_description(content: Mapping[str, Any]) -> dict[str, Any]:
    """Checks what a client tells about itself.

    Args:
        content: The decoded content of its answer.

    Returns:
        The same content.

    Raises:
        Refused: If it is no description.
    """
    check_table(Description, content, "its description")
    try:
        check_plain(content)
    except ValueError as error:
        raise Refused(f"its description is not valid: {error}") from None
    return dict(content)
