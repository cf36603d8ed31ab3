"""How heterogeneous the images of clients are: distances between clients, and a t-SNE map."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

import numpy as np
import torch
from numpy.typing import NDArray

from consort.attacks.information import pooled
from consort.data.examples import Splits
from consort.federation.federation import Federation
from consort.metrics.wasserstein import random_directions, sliced_wasserstein
from consort.report.drawing import MANY_CLIENTS, Trace, colour, figure, matrix
from consort.report.html import Figure, Html, grid, label, plot
from consort.report.numbers import natural

PICTURES = 100
"""The largest number of images per client for distances."""
POINTS = 400
"""The largest number of points on the map."""
DIRECTIONS = 64
_DISTANCES = (
    "Sliced Wasserstein distance between the images of two clients, each image as an 8x8 grid of "
    "mean grey levels from 0 to 1. The diagonal shows the distance between two halves of the same "
    "client, that is, the distance due to chance."
)
_MAP = (
    "t-SNE of the same grids: nearby points are similar images; large distances have no meaning. "
    "Where colours mix, clients have the same kind of images."
)

Numbers = NDArray[np.float64]


def pictures(federation: Federation) -> Html | None:
    """Both plots; `None` if the examples are not images, or there are too many clients."""
    names = sorted(federation.client_ids, key=natural)
    if len(names) > MANY_CLIENTS:
        return None
    grids = {name: _grids(federation.data(name)) for name in names}
    held = {name: found for name, found in grids.items() if found is not None and len(found) > 1}
    if len(held) < 2:
        return None
    return grid(
        plot("Distances between clients", distance_map(held), _DISTANCES),
        plot("Map of images", neighbour_map(held), _MAP),
    )


def _grids(data: Splits) -> Numbers | None:
    """The training images as 8x8 grids; of pairs of images, the first ones."""
    inputs = data.train.tensor
    if inputs.ndim not in (4, 5) or not inputs.is_floating_point():
        return None
    some = inputs[torch.linspace(0, len(inputs) - 1, min(PICTURES, len(inputs))).long()]
    first = some[:, 0] if some.ndim == 5 else some
    return pooled(first.mean(1).double().numpy())


def distances(held: Mapping[str, Numbers]) -> Numbers:
    """Distances between all pairs of clients; on the diagonal, between the halves of one client."""
    size = next(iter(held.values())).shape[1]
    directions = random_directions(DIRECTIONS, size, np.random.default_rng(0))
    samples = list(held.values())
    found = np.diag([sliced_wasserstein(s[::2], s[1::2], directions) for s in samples])
    for one, other in combinations(range(len(samples)), 2):
        moved = sliced_wasserstein(samples[one], samples[other], directions)
        found[one, other] = found[other, one] = moved
    return found


def distance_map(held: Mapping[str, Numbers]) -> Figure:
    """A heat map of the distances between clients."""
    names = [label(name) for name in held]
    trace: Trace = {
        "type": "heatmap",
        "x": names,
        "y": names,
        "z": distances(held).tolist(),
        "zmin": 0,
        "xgap": 1,
        "ygap": 1,
        "colorbar": {"thickness": 10, "outlinewidth": 0},
        "hovertemplate": "%{y} and %{x}: %{z:.3f}<extra></extra>",
    }
    return matrix(trace, "", len(names))


def neighbour_map(held: Mapping[str, Numbers]) -> Figure:
    """A t-SNE map with a point for every image, in the colour of its client."""
    from sklearn.manifold import TSNE

    few = {name: grids[: max(2, POINTS // len(held))] for name, grids in held.items()}
    points = np.concatenate(list(few.values()))
    perplexity = min(30.0, (len(points) - 1) / 3)
    places = TSNE(perplexity=perplexity, init="pca", random_state=0).fit_transform(points)
    owners = np.repeat(np.arange(len(few)), [len(grids) for grids in few.values()])
    traces: list[Trace] = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": label(name),
            "x": places[owners == number, 0].round(3).tolist(),
            "y": places[owners == number, 1].round(3).tolist(),
            "marker": {"color": colour(number), "size": 5},
            "hovertemplate": label(name),
        }
        for number, name in enumerate(few)
    ]
    return figure(traces, "", "", 420)
