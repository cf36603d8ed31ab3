"""The answers of a client as they are sent, and the last one of each run on disk."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from consort.core.files import read_checked, write_checked
from consort.deployment.schema import Ask
from consort.engines.answer_header import AnswerHeader, read_answer_header

Parts = dict[str, bytes]
_LONGEST = 500  # characters of an error


@dataclass(frozen=True)
class Answer:
    """What a client sends back."""

    content: bytes = b""
    error: str = ""
    """Why there is no content."""
    seconds: float = 0.0
    flops: int = 0
    late: bool = False

    @property
    def header(self) -> bytes:
        """All but the content."""
        text = "".join(letter if letter.isprintable() else " " for letter in self.error)
        header = AnswerHeader(
            error=text[:_LONGEST], seconds=self.seconds, flops=self.flops, late=self.late
        )
        return header.model_dump_json().encode()

    @property
    def parts(self) -> Parts:
        """The answer as the parts of a message."""
        return {"header": self.header, "content": self.content}


@dataclass(frozen=True)
class LastAnswer:
    """The last answer of a client in a run.

    A call that is sent again, because its answer was lost, is answered with the same bytes: nothing
    is computed, charged or used up a second time.
    """

    path: Path

    def to(self, question: str) -> Answer | None:
        """The last answer, if it was to this question.

        Args:
            question: The digest of the question: see `question_digest`.

        Raises:
            Failure: If the file is damaged.
        """
        if not self.path.exists():
            return None
        asked, header, content = read_checked(self.path).split(b"\n", 2)
        if asked.decode() != question:
            return None
        return Answer(content, **read_answer_header(header).model_dump())

    def keep(self, question: str, answer: Answer) -> None:
        """Replaces the last answer.

        Args:
            question: The digest of the question.
            answer: The answer.
        """
        data = b"\n".join((question.encode(), answer.header, answer.content))
        write_checked(self.path, data, durable=True)


def question_digest(message: Ask, parts: Parts) -> str:
    """What identifies a question: everything that an answer depends on.

    Args:
        message: The header of the question; its number and its deadline do not matter.
        parts: The parts of the message.
    """
    asked = message.model_dump(exclude={"number", "seconds", "known"})
    found = hashlib.blake2b(json.dumps(asked, sort_keys=True).encode(), digest_size=16)
    for name in ("shared", "own"):
        found.update(hashlib.blake2b(parts.get(name, b"")).digest())
    return found.hexdigest()
