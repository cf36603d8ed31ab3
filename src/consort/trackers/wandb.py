"""Weights & Biases: offline, unless WANDB_MODE says otherwise."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import Any

from consort.trackers.tracker import Tracker, needed


class WeightsAndBiases(Tracker):
    """Writes `wandb/` in the folder of the run, for `wandb sync`; WANDB_MODE=online sends it."""

    _run: Any = None

    def open(self, title: str, name: str, settings: Mapping[str, Any], first: int) -> None:
        """Starts a run, under an identity that a resumed one has as well."""
        identity = hashlib.blake2b(str(self.folder.resolve()).encode(), digest_size=8).hexdigest()
        self._run = needed("wandb", "wandb").init(
            project=title.replace("/", " ")[:128],
            name=name,
            id=identity,
            dir=str(self.folder),
            config=dict(settings),
            mode=os.environ.get("WANDB_MODE", "offline"),
            resume="allow" if first > 1 else None,
        )

    def log(self, round: int, numbers: Mapping[str, float]) -> None:
        """Logs numbers."""
        self._run.log(dict(numbers), step=round)

    def close(self) -> None:
        """Ends the run."""
        if self._run:
            self._run.finish()
