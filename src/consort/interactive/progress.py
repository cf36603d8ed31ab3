"""The progress of runs that Python starts: a bar in a notebook, lines elsewhere."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from consort.report.html import tag
from consort.run.observer import Observer
from consort.run.round_lines import RoundLines


def progress_of(title: str) -> Observer:
    """An observer that shows how a run proceeds, wherever Python runs.

    Args:
        title: The name of the run.
    """
    return NotebookProgress(title) if _in_notebook() else RoundLines(title)


def _in_notebook() -> bool:
    """Whether outputs are shown by a notebook; IPython is loaded then."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel")


class NotebookProgress(RoundLines):
    """A progress bar in the output of a notebook's cell, with the last line of the log.

    Args:
        title: The name of the run.
    """

    def __init__(self, title: str) -> None:
        super().__init__(title)
        self._handle: Any = None

    def say(self, line: str) -> None:
        """Shows a line instead of the one before it."""
        notebook = import_module("IPython.display")
        bar = tag("progress", value=self.done, max=max(self.rounds, 1))
        picture = notebook.HTML(tag("div", bar, f" {line}"))
        if self._handle is None:
            self._handle = notebook.display(picture, display_id=True)
        else:
            self._handle.update(picture)
