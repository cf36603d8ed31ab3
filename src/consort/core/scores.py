"""The scores that clients answer in an evaluation, and their check."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from consort.core.contract import Entry, Whole, shown
from consort.core.contract_groups import Optional
from consort.core.known import Known
from consort.core.limits import LARGEST, LONGEST_NAME, Limits
from consort.errors import Refused

MEASURED = (
    "bytes_down",
    "bytes_up",
    "evaluation_seconds",
    "flops",
    "peak_memory_mib",
    "seconds",
)
"""What the server itself measures, so that no client can record it."""
MOST_SCORES = 100_000
"""How many numbers an answer can hold."""
LIMITS = Limits(bytes=33 << 20, header=32 << 20, tensors=0)
"""The limits of a message with scores."""
_EXAMPLES = Whole(0, 10**12)


def check_scores(
    content: Mapping[str, Any], declared: Mapping[str, Entry | None] | None, known: Known
) -> None:
    """Checks what a client answered in an evaluation.

    Args:
        content: By the name of a model `{split: {"n": examples, "tasks": {task: {metric: value}}}}`
            where a value is a number or a dict of numbers by part; beside it, numbers by name.
        declared: The numbers that may stand beside the scores; None if any may.
        known: What the server knows about the client.

    Raises:
        Refused: If it has another form.
    """
    room = _Room()
    for name, found in content.items():
        _check_name(name, "a model")
        if declared is not None and declared.get(name):
            continue
        if isinstance(found, dict):
            for split, scores in found.items():
                _check_name(split, "a split")
                _check_split(scores, f"{name}, {split}", known, room)
        elif declared is not None or name in MEASURED:
            raise Refused(f"the number {name!r} does not belong to its scores")
        else:
            room.check(found, name)
    for name, entry in (declared or {}).items():
        if entry and name in content:
            entry.check(content[name], name, known)
        elif entry and not isinstance(entry, Optional):
            raise Refused(f"the number {name!r} is missing in its scores")


def _check_split(scores: Any, where: str, known: Known, room: _Room) -> None:
    if not isinstance(scores, dict) or scores.keys() != {"n", "tasks"}:
        raise Refused(f"the scores of {where} are not a dict of `n` and `tasks`")
    _EXAMPLES.check(scores["n"], f"the number of examples of {where}", known)
    for task, metrics in _table(scores["tasks"], where):
        if task not in known.tasks and task not in known.measured:
            raise Refused(f"{where} has {shown(task)}, which is not a task of this client")
        for metric, value in _table(metrics, f"{where}, {task}"):
            _check_name(metric, "a metric")
            if not isinstance(value, dict):
                room.check(value, f"{where}, {metric}")
                continue
            for part, number in value.items():
                _check_name(part, f"a part of {metric}")
                room.check(number, f"{where}, {metric}, {part}")


class _Room:
    """Counts the numbers of an answer."""

    def __init__(self) -> None:
        self.left = MOST_SCORES

    def check(self, value: Any, where: str) -> None:
        """Accepts any number; a model that has diverged has scores that are not finite."""
        self.left -= 1
        if self.left < 0:
            raise Refused(f"an answer has more than {MOST_SCORES} scores")
        whole = isinstance(value, int) and not isinstance(value, bool) and abs(value) <= LARGEST
        if not whole and not isinstance(value, float):
            raise Refused(f"{where} is {shown(value)}, expected a number")


def _table(value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise Refused(f"{where} is {shown(value)}, expected a dict")
    return value.items()


def _check_name(name: Any, what: str) -> None:
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
        raise Refused(f"{shown(name)} is not the name of {what}")
