"""Tasks: what clients learn, with loss, metrics and output head."""

from consort.tasks.classification import Classification
from consort.tasks.supervised import Supervised
from consort.tasks.task import Calibrated, Imitated, Meter, Task

__all__ = ["Calibrated", "Classification", "Imitated", "Meter", "Supervised", "Task"]
