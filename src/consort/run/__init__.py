"""Runs: rounds, their schedule, the history of results, and observers.

`consort.run(…)` makes a run: the package may be called, and is then `consort.train`.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class CallablePackage(ModuleType):
    """This package, which has the name that users expect of a function."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Makes a run: see `consort.train`."""
        import consort

        return consort.train(*arguments, **options)


sys.modules[__name__].__class__ = CallablePackage
