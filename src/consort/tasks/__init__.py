"""Tasks: what clients learn, with loss, metrics and output head."""

from consort.tasks.classification import Classification
from consort.tasks.task import Calibrated, Meter, Task

__all__ = ["Calibrated", "Classification", "Meter", "Task"]
