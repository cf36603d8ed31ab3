"""Tasks: what clients learn."""

from consort.tasks.classification import Classification
from consort.tasks.task import Calibrated, Meter, Task

__all__ = ["Calibrated", "Classification", "Meter", "Task"]
