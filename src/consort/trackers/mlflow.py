"""MLflow: a local store beside the runs, or the server that MLFLOW_TRACKING_URI names."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

from consort.trackers.tracker import Tracker, needed

_RUN = "mlflow-run.txt"
"""In the folder of a run: which MLflow run it is, so that a resumed one goes on there."""
_LONGEST = 500  # characters of a setting


class MLflow(Tracker):
    """Logs to `mlruns/` in the folder of all runs, unless MLFLOW_TRACKING_URI names a server."""

    _client: Any = None
    _id = ""
    _last = 0
    """The last round that an earlier process has logged."""

    def open(self, title: str, name: str, settings: Mapping[str, Any], first: int) -> None:
        """Starts an MLflow run, or goes on with the one of this folder."""
        module = needed("mlflow", "mlflow")
        place = os.environ.get("MLFLOW_TRACKING_URI")
        if not place:
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
            place = (self.root / "mlruns").resolve().as_uri()
        self._client = module.MlflowClient(tracking_uri=place)
        note = self.folder / _RUN
        if first > 1 and note.exists():
            self._id = note.read_text().strip()
            self._last = self._last_round()
            return
        known = self._client.get_experiment_by_name(title)
        experiment = known.experiment_id if known else self._client.create_experiment(title)
        self._id = self._client.create_run(experiment, run_name=name).info.run_id
        note.write_text(self._id)
        for key, value in settings.items():
            self._client.log_param(self._id, _name(key), str(value)[:_LONGEST])

    def log(self, round: int, numbers: Mapping[str, float]) -> None:
        """Logs metrics; a round that is repeated after an interruption only once."""
        if round <= self._last:
            return
        now = int(1000 * time.time())
        for name, value in numbers.items():
            self._client.log_metric(self._id, _name(name), value, now, round)

    def _last_round(self) -> int:
        names = self._client.get_run(self._id).data.metrics
        points = (m for name in names for m in self._client.get_metric_history(self._id, name))
        return max((point.step for point in points), default=0)

    def close(self) -> None:
        """Ends the MLflow run."""
        if self._client:
            self._client.set_terminated(self._id)


def _name(text: str) -> str:
    """A name with the characters that MLflow accepts."""
    return "".join(c if c.isalnum() or c in "_-./ " else "_" for c in text)
