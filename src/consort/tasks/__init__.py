"""Tasks: what clients learn."""

from consort.tasks.classification import Classification
from consort.tasks.edges import Edges
from consort.tasks.geometry import Depth, Normals
from consort.tasks.keypoints import KeyPoints
from consort.tasks.panoptic import Instances, Panoptic
from consort.tasks.segmentation import Saliency, Segmentation
from consort.tasks.task import Calibrated, Meter, Task

__all__ = [
    "Calibrated",
    "Classification",
    "Depth",
    "Edges",
    "Instances",
    "KeyPoints",
    "Meter",
    "Normals",
    "Panoptic",
    "Saliency",
    "Segmentation",
    "Task",
]
