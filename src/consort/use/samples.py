"""Writes images of one user's signatures, to try a trained model with."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from consort.data.examples import Examples, Splits
from consort.data.page import PAPER
from consort.domains.signatures.tasks import claimed_user
from consort.experiment.assembly import assemble
from consort.experiment.recipe import Recipe

_MOST = 5
"""The largest number of images of each kind."""


class Samples(NamedTuple):
    """Where the images are, the user who wrote the signatures, and the client of that user."""

    folder: Path
    client: str
    user: int


def write_samples(recipe: Recipe, seed: int, folder: Path) -> Samples:
    """Writes references from a client's training data, and test signatures, genuine and forged.

    The client and the user are chosen so that there are as many images of each kind as possible.

    Args:
        recipe: A recipe with signatures.
        seed: The seed of the run.
        folder: Where the images are written.

    Returns:
        What was written.
    """
    federation = assemble(recipe, seed, None).federation
    known = {
        (client, user): _pictures(federation.data(client), user)
        for client in federation.client_ids
        for user in _users(federation.data(client).train)
    }
    client, user = max(known, key=lambda who: min(len(found) for found in known[who].values()))
    for kind, images in known[client, user].items():
        for number, image in enumerate(images[:_MOST], start=1):
            _draw(image, folder / f"{kind}-{number}.png")
    return Samples(folder, client, user)


def _users(examples: Examples) -> list[int]:
    return sorted(set(claimed_user(examples.targets["identify"]).tolist()))


def _pictures(data: Splits, user: int) -> dict[str, Tensor]:
    return {
        "reference": _signatures(data.train, user, True),
        "genuine": _signatures(data.test, user, True),
        "forged": _signatures(data.test, user, False),
    }


def _signatures(examples: Examples, user: int, genuine: bool) -> Tensor:
    chosen = claimed_user(examples.targets["identify"]) == user
    return examples.tensor[chosen & (examples.targets["detect"].bool() == genuine)]


def _draw(image: Tensor, path: Path) -> None:
    """Writes an image with dark ink on white paper."""
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    page = (PAPER * (1 - image[0])).round().to(torch.uint8)
    Image.fromarray(page.contiguous().numpy()).save(path)
