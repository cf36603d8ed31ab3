"""More rounds for a run than were planned, as if they had been planned from the start."""

from __future__ import annotations

import ast
import dataclasses
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from consort.core.algorithm import Algorithm
from consort.errors import UsageError
from consort.federation.federation import Federation
from consort.run.checkpoints import Checkpoints
from consort.run.cleaning import CLEANED
from consort.run.folder import read_description
from consort.training.local import LocalTraining

_NUMBER = "rounds"
_RATE = "rate"  # of LocalTraining, whose schedule is looked at


def refuse_extension(
    folder: Path, before: int, now: int, algorithm: Algorithm[Any], federation: Federation
) -> None:
    """Refuses another number of rounds, unless the run can be extended.

    Args:
        folder: The folder of the run.
        before: The number of rounds that were planned.
        now: The number that is planned now.
        algorithm: The algorithm.
        federation: The clients.

    Raises:
        UsageError: The rounds that were made would have been others.
    """
    if now < before:
        raise UsageError(
            f"{folder} holds a run of {before} rounds, and {now} are fewer: choose another --out"
        )
    if now == before:
        return
    if read_description(folder).get(CLEANED):
        raise UsageError(f"{folder} was cleaned and cannot be extended: choose another --out")
    for reason in reasons_against(algorithm, federation):
        raise UsageError(
            f"{folder} cannot be extended from {before} to {now} rounds, since {reason}: choose "
            "another --out"
        )


def repeat_last_round(folder: Path, planned: int) -> None:
    """Prepares a folder, which this process holds, for more rounds than were planned.

    What a run measures after its last round may differ from what it measures after others, so the
    last round of a finished run is repeated.

    Args:
        folder: The folder of the run.
        planned: The number of rounds that were planned.
    """
    Checkpoints(folder).forget_from(planned)


def reasons_against(algorithm: Algorithm[Any], federation: Federation) -> Iterator[str]:
    """Why the first rounds of a longer run would not be those of a shorter one.

    Args:
        algorithm: The algorithm.
        federation: The clients.
    """
    for field in dataclasses.fields(cast(Any, algorithm)):
        value = getattr(algorithm, field.name)
        if isinstance(value, LocalTraining) and value.schedule == "cosine":
            yield f'{field.name}.schedule = "cosine" depends on the number of rounds'
    for name, member in federation.members.items():
        if member.local.get("schedule") == "cosine":
            yield f'the schedule "cosine" of {name} depends on the number of rounds'
    parts = (algorithm, *federation.protections)
    for part in parts:
        if uses_number_of_rounds(type(part)):
            yield f"{type(part).__name__} depends on the number of rounds"


def uses_number_of_rounds(kind: type) -> bool:
    """Whether the code of a class reads how many rounds there are; also if its code is not known.

    Passing the number to `LocalTraining.rate` does not count: that depends on its schedule.

    Args:
        kind: The class.
    """
    for base in kind.__mro__:
        if base.__module__.startswith(("consort.core.", "consort.federation.")) or base is object:
            continue
        try:
            tree = ast.parse(inspect.getsource(inspect.getmodule(base) or base))
        except (OSError, TypeError, SyntaxError):
            return True
        if any(_reads(tree)):
            return True
    return False


def _reads(node: ast.AST) -> Iterator[ast.AST]:
    """The places in which an attribute `rounds` is read, without arguments of `rate`."""
    if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == _RATE:
        return
    if isinstance(node, ast.Attribute) and node.attr == _NUMBER:
        yield node
    for child in ast.iter_child_nodes(node):
        yield from _reads(child)
