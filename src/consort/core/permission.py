"""Whether something may be named: code, parts of Consort and files that others ask a client to use.

Whoever works on a request of somebody else does so within `permitting`. Then each name that is
looked up (`consort.core.plugins.find`) and each option that is a file (`LocalFile` in
`consort.core.bounds`) is judged first, wherever in the request it stands. So is each text among the
options of code that somebody brings, which does not say which of them are files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

FILES = "files"
"""The kind of options that name a file on this machine; all other kinds are fields of `Plugin`."""
Judge = Callable[[str, str], None]
"""Called with a kind and a name; raises an error if the name must not be used."""

_judge: ContextVar[Judge | None] = ContextVar("judge", default=None)


@contextmanager
def permitting(judge: Judge) -> Iterator[None]:
    """Within this context, a judge decides which names and files may be used.

    Args:
        judge: Raises an error for what must not be used.
    """
    token = _judge.set(judge)
    try:
        yield
    finally:
        _judge.reset(token)


def check_permitted(kind: str, name: str) -> None:
    """Asks the judge, if there is one; what the user of this machine names himself needs none.

    Args:
        kind: A field of `Plugin`, such as "models", or `FILES`.
        name: The name, the place or the file.
    """
    judge = _judge.get()
    if judge is not None:
        judge(kind, name)


def check_options(place: str, options: Any) -> None:
    """Asks about each text among the options of code that is no part of Consort or a plug-in.

    Args:
        place: The name of the code; places such as `file.py:Class` have a colon.
        options: Its options.
    """
    if ":" in place:
        for text in texts_in(options):
            check_permitted(FILES, text)


def texts_in(value: Any) -> Iterator[str]:
    """All texts in a value, wherever in its tables and lists they stand.

    Args:
        value: Plain values, as in a recipe.
    """
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from texts_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from texts_in(item)
