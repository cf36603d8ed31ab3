"""More rounds for a run than were planned, as if they had been planned from the start."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

from consort.core.algorithm import Algorithm
from consort.errors import UsageError
from consort.federation.federation import Federation
from consort.run.checkpoints import Checkpoints
from consort.run.folder import CLEANED, read_description
from consort.training.local import LocalTraining

if TYPE_CHECKING:
    from consort.run.run import Run

_NUMBER = "rounds"
_RATE = "rate"  # of LocalTraining, whose schedule is looked at
_OURS = ("consort.core.", "consort.federation.")


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


def repeat_last_round(run: Run, folder: Path, planned: int) -> None:
    """Prepares a folder, which this process holds, for more rounds than were planned.

    What a run measures after its last round may differ from what it measures after others, so the
    last round of a finished run is repeated. Before its checkpoint is deleted, all that the round
    began with is read: if something of it is missing or damaged, the finished run stays as it is.

    Args:
        run: The run.
        folder: Its folder.
        planned: The number of rounds that were planned.

    Raises:
        UsageError: The checkpoint before the last round is missing.
        Failure: What the round began with is damaged.
    """
    checkpoints = Checkpoints(folder)
    if checkpoints.last < planned:
        return
    if planned > 1:
        saved = run.saved(1)
        if saved is None or saved["round"] != planned - 1:
            raise UsageError(
                f"{folder} cannot be extended, since the checkpoint of round {planned - 1} is "
                "missing: choose another --out"
            )
        states = run.states(saved)
        for client in {*run.federation.client_ids, *run.federation.evaluation_ids}:
            states.read(client, (planned, 0))
    checkpoints.forget_from(planned)


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
    for part in (algorithm, *federation.protections):
        if uses_number_of_rounds(type(part)):
            yield f"the code of {type(part).__name__} uses the number of rounds, or is not known"


def uses_number_of_rounds(kind: type) -> bool:
    """Whether the code of a class reads how many rounds there are; also if its code is not known.

    Passing the number to `LocalTraining.rate` does not count: that depends on its schedule.

    Args:
        kind: The class.
    """
    bases = [base for base in kind.__mro__ if not base.__module__.startswith(_OURS)]
    own = [b for b in bases if b.__module__.partition(".")[0] not in sys.stdlib_module_names]
    return any(_reads_number(base) for base in own)


def _reads_number(kind: type) -> bool:
    try:
        return any(any(_reads(ast.parse(text))) for text in _sources(kind))
    except (OSError, TypeError, SyntaxError):
        return True


def _sources(kind: type) -> Iterator[str]:
    """The code of a class's module and of the modules beside it that it uses."""
    home = sys.modules.get(kind.__module__)
    if home is None or getattr(home, "__file__", None) is None:  # a notebook, or made on the fly
        yield inspect.getsource(kind)
        return
    seen, waiting = set(), [home]
    while waiting:
        module = waiting.pop()
        if module.__name__ not in seen:
            seen.add(module.__name__)
            yield inspect.getsource(module)
            waiting += _beside(module)


def _beside(module: ModuleType) -> Iterator[ModuleType]:
    """The modules in the folder of a module from which it takes something."""
    folder = Path(str(module.__file__)).parent
    for value in vars(module).values():
        name = value.__name__ if isinstance(value, ModuleType) else _module_name(value)
        other = sys.modules.get(name)
        file = getattr(other, "__file__", None)
        if other is not None and file and Path(file).parent == folder:
            yield other


def _module_name(value: Any) -> str:
    name = getattr(value, "__module__", None)
    return name if isinstance(name, str) else ""


def _reads(node: ast.AST) -> Iterator[ast.AST]:
    """The places in which an attribute `rounds` is read, without arguments of `rate`."""
    if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == _RATE:
        return
    if isinstance(node, ast.Attribute) and node.attr == _NUMBER:
        yield node
    for child in ast.iter_child_nodes(node):
        yield from _reads(child)
