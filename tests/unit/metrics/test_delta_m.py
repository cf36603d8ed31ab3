from __future__ import annotations

import pytest

from consort.errors import UsageError
from consort.metrics.delta_m import delta_m

TASKS = [f"p-{t}" for t in ("seg", "parts", "sal", "normals", "edges")]
TASKS += [f"n-{t}" for t in ("seg", "depth", "normals", "edges")]
HIGHER = {task: "normals" not in task and "depth" not in task for task in TASKS}
LOCAL = {
    "1C": [51.69, 49.94, 80.91, 15.76, 71.95, 41.86, 0.6487, 20.59, 76.46],
    "2C": [42.21, 47.22, 78.64, 16.62, 70.66, 36.77, 0.7300, 21.96, 76.06],
    "4C": [21.85, 34.84, 76.59, 17.57, 69.17, 31.49, 0.7433, 23.55, 74.53],
}
PRINTED = [
    ("1C", [39.98, 37.33, 77.56, 18.27, 69.17, 38.94, 0.7858, 21.62, 75.77], -11.76),
    ("1C", [57.55, 52.30, 80.71, 15.60, 72.08, 41.47, 0.6281, 20.53, 76.50], 2.18),
    ("2C", [45.80, 49.52, 79.73, 15.98, 71.61, 39.66, 0.6603, 20.92, 76.21], 4.70),
    ("4C", [15.38, 31.21, 76.00, 18.21, 69.00, 34.27, 0.6877, 23.35, 75.20], -2.96),
    ("4C", [22.36, 36.54, 79.10, 16.49, 70.72, 36.20, 0.6510, 21.30, 75.62], 6.36),
]
"""Rows of Table 1 of FedHCA², with 69.00 for a misprint of 76.00."""


@pytest.mark.parametrize(("scale", "values", "printed"), PRINTED)
def test_printed_values(scale, values, printed):
    by_task = dict(zip(TASKS, values, strict=True))
    local = dict(zip(TASKS, LOCAL[scale], strict=True))
    assert delta_m(by_task, local, HIGHER) == pytest.approx(printed, abs=0.006)


def test_training_alone_gains_nothing():
    values = {"a": 0.3, "b": 4.0}
    assert delta_m(values, values, {"a": True, "b": False}) == 0


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(UsageError, match="same tasks"):
        delta_m({"a": 1.0}, {"b": 1.0}, {"a": True, "b": True})
    with pytest.raises(UsageError, match="same tasks"):
        delta_m({}, {}, {})
    with pytest.raises(UsageError, match="'a' has a baseline of 0"):
        delta_m({"a": 1.0}, {"a": 0.0}, {"a": True})
