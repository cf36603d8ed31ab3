"""Every tracker that is installed gets the settings and the numbers of a real run, offline."""

from __future__ import annotations

import socket
import sqlite3
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.helpers import tiny_federation

from consort import LocalTraining, Run, Schedule
from consort.algorithms.fedavg import FedAvg
from consort.errors import UsageError
from consort.results.result import Result
from consort.trackers.choice import check_trackers, trackers
from consort.trackers.tracker import flat

RUN = "tracked/fedavg/seed-0"
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


def only_local(monkeypatch):
    """Connections to anything but this machine are errors."""
    connect = socket.socket.connect

    def checked(self, address):
        if self.family != socket.AF_UNIX and address[0] not in ("127.0.0.1", "localhost", "::1"):
            pytest.fail(f"a connection to {address}")
        return connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", checked)


@pytest.fixture
def tracked(tmp_path, monkeypatch):
    """Makes a run with a tracker, of so many rounds; again to continue it."""
    only_local(monkeypatch)

    def go(name: str, rounds: int) -> Result:
        if not find_spec(name):
            pytest.skip(f"{name} is not installed")
        folder = tmp_path / RUN
        (observer,) = trackers([name], folder, tmp_path / "tracked")
        federation, schedule = tiny_federation(2), Schedule(rounds)
        Run(federation, FedAvg(LocalTraining(lr=0.25)), schedule, folder=folder, observer=observer,
            title="Two clients").go()  # fmt: skip
        return Result.load(folder)

    return go


def accuracies(result: Result) -> list[float]:
    return [point.mean for point in result.curve("classify")]


def test_tensorboard(tracked, tmp_path):
    result = tracked("tensorboard", 2)
    result = tracked("tensorboard", 3)
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / RUN / "tensorboard")).Reload()
    found = events.Scalars("test/accuracy")
    assert [event.step for event in found] == [1, 2, 3]
    assert [event.value for event in found] == pytest.approx(accuracies(result))
    assert {"validation/accuracy", "MiB", "s"} <= set(events.Tags()["scalars"])
    (text,) = events.Tensors("settings/text_summary")[:1]
    assert b"options.local.lr = 0.25" in text.tensor_proto.string_val[0]


def test_mlflow(tracked, tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    result = tracked("mlflow", 2)
    result = tracked("mlflow", 3)
    import mlflow

    client = mlflow.MlflowClient(tracking_uri=(tmp_path / "tracked" / "mlruns").as_uri())
    experiment = client.get_experiment_by_name("Two clients")
    (run,) = client.search_runs([experiment.experiment_id])  # the resumed one is the same
    assert run.info.run_name == "fedavg, seed 0"
    assert run.info.status == "FINISHED"
    assert run.data.params["options.local.lr"] == "0.25"
    history = client.get_metric_history(run.info.run_id, "test/accuracy")
    assert [(m.step, m.value) for m in history] == list(enumerate(accuracies(result), start=1))


def test_wandb(tracked, tmp_path, monkeypatch):
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.setenv("WANDB_SILENT", "true")
    tracked("wandb", 2)
    (folder,) = (tmp_path / RUN / "wandb").glob("offline-run-*")
    content = next(folder.glob("*.wandb")).read_bytes()
    assert b"test/accuracy" in content
    assert b"options.local.lr" in content


def test_trackio(tracked, tmp_path, monkeypatch):
    monkeypatch.delenv("TRACKIO_DIR", raising=False)
    for module in [name for name in sys.modules if name.split(".")[0] == "trackio"]:
        del sys.modules[module]  # it reads TRACKIO_DIR when it is imported
    result = tracked("trackio", 2)
    (file,) = (tmp_path / "tracked" / "trackio").glob("*.db")
    with sqlite3.connect(file) as base:
        rows = base.execute("select step, metrics from metrics order by step").fetchall()
    base.close()
    assert [step for step, _ in rows] == [1, 2]
    assert f"{accuracies(result)[0]:.6g}"[:4] in str(rows[0][1])


def test_a_finished_run_is_not_tracked_again(tracked, tmp_path):
    tracked("tensorboard", 1)
    files = sorted(Path(tmp_path / RUN / "tensorboard").iterdir())
    tracked("tensorboard", 1)
    assert sorted(Path(tmp_path / RUN / "tensorboard").iterdir()) == files


def test_wrong_names_and_missing_packages_are_told(monkeypatch):
    with pytest.raises(UsageError, match="no tracker 'tensorbord': did you mean 'tensorboard'"):
        check_trackers(["tensorbord"])
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UsageError, match=r"pip install 'fedconsort\[wandb\]'"):
        check_trackers(["wandb"])


def test_settings_are_flat_and_plain():
    tree = {"run": {"rounds": 2, "none": None}, "seeds": [0, 1], "empty": [], "title": "x"}
    assert flat(tree) == {"run.rounds": 2, "seeds": "[0, 1]", "title": "x"}
