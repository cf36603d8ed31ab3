"""Tasks: what clients learn."""

from consort.tasks.classification import Classification
from consort.tasks.edges import Edges
from consort.tasks.geometry import Depth, Normals
from consort.tasks.segmentation import Saliency, Segmentation
from consort.tasks.task import Calibrated, Meter, Task

__all__ = [
    "Calibrated",
    "Classification",
    "Depth",
    "Edges",
    "Meter",
    "Normals",
    "Saliency",
    "Segmentation",
    "Task",
]
