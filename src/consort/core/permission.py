"""Whether something may be named: code, parts of Consort and files that others ask a client to use.

Whoever works on a request of somebody else does so within `permitting`. Then each name that is
looked up (`consort.core.plugins.find`) and each option that is a file (`LocalFile` in
`consort.core.bounds`) is judged first, wherever in the request it stands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

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
