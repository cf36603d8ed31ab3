"""Trackio: a local data base, shown with `trackio show`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from consort.trackers.tracker import Tracker, needed


class Trackio(Tracker):
    """Logs to `trackio/` in the folder of all runs, unless TRACKIO_DIR names another one."""

    _run: Any = None

    def open(self, title: str, name: str, settings: Mapping[str, Any], first: int) -> None:
        """Starts a run, or goes on with the one of this name."""
        os.environ.setdefault("TRACKIO_DIR", str((self.root / "trackio").resolve()))
        self._module = needed("trackio", "trackio")
        self._run = self._module.init(
            project=title,
            name=name,
            config=dict(settings),
            resume="allow" if first > 1 else "never",
            embed=False,
        )

    def log(self, round: int, numbers: Mapping[str, float]) -> None:
        """Logs numbers."""
        self._run.log(dict(numbers), step=round)

    def close(self) -> None:
        """Ends the run, when everything is written."""
        if self._run:
            self._run.finish()
