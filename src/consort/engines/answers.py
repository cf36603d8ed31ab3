"""What clients may answer to a call: how large it is, before it is decoded, and what it holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

from consort.core.algorithm import Algorithm
from consort.core.clients import answers_of
from consort.core.contract import Contract, Count, Entry, Size
from consort.core.contract_groups import Optional
from consort.core.known import Known
from consort.core.limits import LARGEST, LONGEST_NAME, Limits
from consort.core.messages import Call, Payload
from consort.core.scores import LIMITS as SCORES
from consort.core.scores import check_scores
from consort.core.wire import FACTORS, NamedTensor, check, check_finite
from consort.errors import Refused
from consort.federation.federation import Federation

_EXAMPLES = "examples"
_MOST_ENTRIES = 1000
_PER_MODEL = 8
"""An answer of which nothing is declared may be so many times as large as the model."""
_SPARE = 64 << 20


class Answers:
    """What the clients of a run may answer.

    Args:
        about: Tells what the server knows about a client, given its name.
        algorithm: The algorithm, whose client methods declare what they answer.
        rewritten: Whether a protection gives the answers of training another form.
        measures: Numbers that protections add to the scores of evaluations.
    """

    def __init__(
        self,
        about: Callable[[str], Known],
        algorithm: Algorithm[Any],
        rewritten: bool = False,
        measures: Contract = MappingProxyType({}),
    ) -> None:
        self.known = cache(about)
        """What is known about a client, looked up once."""
        self.algorithm = algorithm
        self.rewritten = rewritten
        self.measures = measures

    @classmethod
    def restored(cls, federation: Federation, algorithm: Algorithm[Any]) -> Answers:
        """Answers after the server halves of protections have restored them.

        Args:
            federation: The clients, with all protections.
            algorithm: The algorithm.
        """
        measures = {k: v for p in federation.protections for k, v in p.measures.items()}
        return cls(federation.known, algorithm, False, measures)

    @classmethod
    def sent(cls, federation: Federation, algorithm: Algorithm[Any]) -> Answers:
        """Answers as clients send them, before the server halves of protections see them.

        Args:
            federation: The clients, with all protections.
            algorithm: The algorithm.
        """
        answers = cls.restored(federation, algorithm)
        answers.rewritten = any(protection.rewrites for protection in federation.protections)
        return answers

    def check(self, call: Call, content: Payload, tensors: list[NamedTensor]) -> None:
        """Checks the answer to a call.

        Args:
            call: The call.
            content: What the client answered.
            tensors: The tensors in it.

        Raises:
            Refused: If it is not what the method declares, or cannot be right at all.
        """
        if not isinstance(content, dict) or len(content) > _MOST_ENTRIES:
            raise Refused(f"its answer is not a dict of at most {_MOST_ENTRIES} entries")
        known = self.known(call.client)
        entries = self._entries(call)
        if call.evaluation:
            check_scores(content, entries, known)
        elif entries is None:
            self._check_undeclared(content, tensors, known)
        else:
            _check_entries(content, entries, known)
        floating = [(name, tensor) for name, tensor in tensors if tensor.is_floating_point()]
        check_finite(floating, LARGEST)

    def limits(self, call: Call) -> Limits:
        """How large the answer to a call can be.

        Args:
            call: The call.

        Returns:
            The limits of the message with the answer.
        """
        if call.evaluation:
            return SCORES
        known = self.known(call.client)
        entries = self._entries(call)
        if entries is None:
            model = known.form.whole
            return Limits(bytes=_PER_MODEL * model.data + _SPARE)
        sizes = (entry.size(known) for entry in entries.values() if entry)
        return sum(sizes, start=Size()).limits

    def _entries(self, call: Call) -> Mapping[str, Entry | None] | None:
        """What the method declares, for this call; None if it declares nothing."""
        if not call.of_algorithm or (self.rewritten and not call.evaluation):
            return None
        contract: Contract | None = answers_of(getattr(self.algorithm, call.method, None))
        if contract is None:
            return None
        if call.evaluation:
            contract = {**contract, **self.measures}
        return {
            name: found if isinstance(found, Entry | None) else found(self.algorithm, call.payload)
            for name, found in contract.items()
        }

    def _check_undeclared(self, content: Payload, tensors: list[NamedTensor], known: Known) -> None:
        """The checks that fit any answer."""
        for name in content:
            if not isinstance(name, str) or len(name) > LONGEST_NAME:
                raise Refused("an entry of its answer has no name, or one that is too long")
        if isinstance(content.get(_EXAMPLES), int | float):
            Count().check(content[_EXAMPLES], _EXAMPLES, known)
        check(tensors, known.form.shapes)
        kinds = known.form.whole.kinds
        for name, tensor in tensors:
            _, kind = kinds.get(name.removesuffix(FACTORS), ((), tensor.dtype))
            if tensor.dtype is not kind:
                raise Refused(f"parameter {name!r} has type {tensor.dtype}, expected {kind}")


def _check_entries(content: Payload, entries: Mapping[str, Entry | None], known: Known) -> None:
    for name in content:
        if entries.get(name) is None:
            raise Refused(f"its answer has the additional entry {str(name)[:LONGEST_NAME]!r}")
    for name, entry in entries.items():
        if entry is None:
            continue
        if name in content:
            entry.check(content[name], name, known)
        elif not isinstance(entry, Optional):
            raise Refused(f"its answer lacks the entry {name!r}")
