"""Taskonomy: rooms from several viewpoints, with dense targets (Zamir et al. 2018)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from consort.data.dataset import Dataset
from consort.data.examples import Examples
from consort.data.folder import not_found, read_arrays
from consort.data.pixels import scale
from consort.domains.scenes.metrics.edges import thinned
from consort.domains.scenes.tasks.dense import IGNORED
from consort.domains.scenes.tasks.edges import Edges
from consort.domains.scenes.tasks.geometry import Depth, Normals
from consort.domains.scenes.tasks.segmentation import Segmentation

EXTRACT = "dense/taskonomy_96.npz"
_SEGMENTS = 16
_PER_METRE = 512
_EDGE = 30 / 255  # the faintest texture edge that counts
_BATCH = 64


def taskonomy(folder: Path | None) -> Dataset:
    """Taskonomy's tiny rooms in 96x96 pixels: segments, normals, depth and edges.

    Args:
        folder: The data folder.

    Returns:
        The data set; views of the same place stay together when it is partitioned.

    Raises:
        UsageError: If the file is not in the folder.
        Failure: If the file is damaged.
    """
    path = folder / EXTRACT if folder else None
    if path is None or not path.is_file():
        raise not_found("taskonomy", folder, (EXTRACT,), twin="synthetic_scenes")
    names = ("rgb", "normal", "depth", "seg", "edge2d", "point_id")
    images, normals, depths, segments, strengths, places = read_arrays(path, *names)
    targets = {
        "segment": torch.from_numpy(segments),
        "normals": _unit_vectors(torch.from_numpy(normals)),
        "depth": torch.from_numpy((depths / np.float32(_PER_METRE)).astype(np.float16)),
        "edges": _thin_edges(torch.from_numpy(strengths)),
    }
    inputs = torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2)))
    return Dataset(
        name="taskonomy",
        examples=Examples(inputs, targets),
        tasks={
            "segment": Segmentation(_SEGMENTS),
            "normals": Normals(),
            "depth": Depth(),
            "edges": Edges(tolerance=0.011),
        },
        labels=np.zeros(len(images), dtype=np.int64),
        units=places,
        prepare=scale,
    )


def _unit_vectors(pixels: Tensor) -> Tensor:
    """Right, up and towards the camera; vectors near zero are ignored."""
    vectors = (pixels.movedim(-1, 1).float() / 127.5 - 1) * torch.tensor([1, -1, -1])[:, None, None]
    lengths = vectors.norm(dim=1, keepdim=True)
    return torch.where(lengths > 0.5, vectors / lengths.clamp(min=0.5), float(IGNORED)).half()


def _thin_edges(strengths: Tensor) -> Tensor:
    parts = [thinned(part.float() / 255) >= _EDGE for part in torch.split(strengths, _BATCH)]
    return torch.cat(parts).to(torch.uint8)
