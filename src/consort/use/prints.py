"""Fingerprints in use: embeddings of single prints, and scores that tolerate rotation."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from consort.core.randomness import derive
from consort.data.examples import Examples
from consort.domains.signatures.writer_dependent import Features
from consort.metrics.biometric import Scores
from consort.training.scoring import BATCH
from consort.use.calibration import DRAWS, GENUINE, MOST_REFERENCES, RANDOM, Trials
from consort.use.features import Apply

DISTANCE = "distance"
TURNS = (0.0, -10.0, 10.0, -20.0, 20.0)
"""The rotations in degrees at which a print is compared."""
_MOST_IMPOSTORS = 60
"""The largest number of other prints that each finger is compared with in calibration."""


def turned(images: Tensor, degrees: float) -> Tensor:
    """Rotates prints; new pixels at the border get the print's brightest grey.

    Args:
        images: Images x 1 x height x width.
        degrees: The angle.
    """
    if not degrees:
        return images
    angle = torch.tensor(degrees).deg2rad()
    cos, sin = angle.cos(), angle.sin()
    rows = torch.tensor([[cos, sin, 0.0], [-sin, cos, 0.0]]).expand(len(images), 2, 3)
    grid = F.affine_grid(rows, list(images.shape), align_corners=False)
    paper = images.flatten(1).quantile(0.95, dim=1)[:, None, None, None]
    return F.grid_sample(images - paper, grid, align_corners=False) + paper


@torch.inference_mode()
def embeddings(apply: Apply, images: Tensor, place: int) -> Features:
    """The embedding of each print.

    Args:
        apply: A model of pairs.
        images: Images x 1 x height x width.
        place: The place of the embeddings among the outputs.

    Returns:
        One row for each image.
    """
    found = [
        apply(torch.stack([part, part], 1))[place][:, 0] for part in torch.split(images, BATCH)
    ]
    return torch.cat(found).numpy()


def turned_embeddings(
    apply: Apply, images: Tensor, place: int, around: float = 0.0
) -> NDArray[np.floating]:
    """The embeddings of prints at each of `TURNS`.

    Args:
        apply: A model of pairs.
        images: Images x 1 x height x width.
        place: The place of the embeddings among the outputs.
        around: Degrees that are added to each of them.

    Returns:
        Turns x images x width.
    """
    return np.stack(
        [embeddings(apply, turned(images, around + degrees), place) for degrees in TURNS]
    )


def closeness(references: Features, queries: NDArray[np.floating]) -> Scores:
    """Minus the distance between each query and the nearest reference, at the best rotation.

    Args:
        references: Embeddings of the enrolled impressions, one row each.
        queries: Embeddings of the prints to score, turns x prints x width.
    """
    apart = queries[:, :, None].astype(np.float64) - references[None, None].astype(np.float64)
    nearest: Scores = -np.sqrt((apart**2).sum(-1)).min(axis=(0, 2))
    return nearest


def print_trials(apply: Apply, examples: Examples, place: int) -> dict[str, Trials]:
    """Scores of a client's validation fingers, on whom nothing was trained.

    Args:
        apply: A model of pairs.
        examples: Pairs of validation data.
        place: The place of the embeddings among the outputs.

    Returns:
        Trials by the number of references, up to the number that leaves some finger a print.
    """
    images, fingers = _impressions(examples)
    found: dict[str, Trials] = {}
    if not len(images):
        return found
    upright = embeddings(apply, images, place)
    asked = turned_embeddings(apply, images, place)
    for count in range(1, MOST_REFERENCES + 1):
        trials = _trials(upright, asked, fingers, count)
        if len(trials) == 2:
            found[str(count)] = trials
    return found


def _impressions(examples: Examples) -> tuple[Tensor, NDArray[np.int64]]:
    """Every image once, and its finger."""
    once: dict[tuple[int, bytes], Tensor] = {}
    for pair, finger in zip(examples.tensor, examples.targets["verify"].tolist(), strict=True):
        for image in pair:
            once.setdefault((finger, image.contiguous().numpy().tobytes()), image)
    images = torch.stack(list(once.values())) if once else torch.empty(0)
    return images, np.array([finger for finger, _ in once], dtype=np.int64)


def _trials(
    upright: Features, asked: NDArray[np.floating], fingers: NDArray[np.int64], count: int
) -> Trials:
    rng = np.random.default_rng(derive(0, "prints", count))
    found: Trials = {}
    for finger in np.unique(fingers):
        own, others = np.flatnonzero(fingers == finger), np.flatnonzero(fingers != finger)
        for _ in range(DRAWS if len(own) > count else 0):
            references, rest = np.split(rng.permutation(own), [count])
            strangers = rng.permutation(others)[:_MOST_IMPOSTORS]
            for kind, rows in ((GENUINE, rest), (RANDOM, strangers)):
                scores = closeness(upright[references], asked[:, rows])
                if len(scores):
                    found.setdefault(kind, []).extend([float(finger), s] for s in scores.tolist())
    return found
