"""TensorBoard: event files in the folder of the run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from consort.trackers.tracker import Tracker, needed


class TensorBoard(Tracker):
    """Writes `tensorboard/` in the folder of the run: `tensorboard --logdir runs/writers`."""

    _writer: Any = None

    def open(self, title: str, name: str, settings: Mapping[str, Any], first: int) -> None:  # noqa: ARG002
        """Opens an event file; what it had from `first` on is hidden."""
        needed("tensorboard", "tensorboard")
        writer = needed("torch.utils.tensorboard", "tensorboard").SummaryWriter
        place = str(self.folder / "tensorboard")
        self._writer = writer(place, purge_step=first if first > 1 else None)
        lines = "\n".join(f"    {key} = {value}" for key, value in settings.items())
        self._writer.add_text("settings", lines)

    def log(self, round: int, numbers: Mapping[str, float]) -> None:
        """Adds scalars."""
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, round)
        self._writer.flush()

    def close(self) -> None:
        """Closes the event file."""
        if self._writer:
            self._writer.close()
