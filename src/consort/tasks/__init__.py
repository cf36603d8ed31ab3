"""Tasks: what clients learn."""

from consort.tasks.classification import Classification
from consort.tasks.task import Meter, Task

__all__ = ["Classification", "Meter", "Task"]
