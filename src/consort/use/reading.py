"""From a picture to what templates are compared with, for signatures and for fingerprints."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from consort.data.page import read_page
from consort.domains.fingerprints.dataset import grey
from consort.domains.fingerprints.quality import LEAST, quality
from consort.domains.fingerprints.scan import PrintScan
from consort.domains.signatures.dataset import ink
from consort.domains.signatures.quality import complaint
from consort.domains.signatures.scan import Scan
from consort.domains.signatures.writer_dependent import Features
from consort.errors import UsageError
from consort.use.features import features_and_logits
from consort.use.formats import LoadedModel
from consort.use.prints import turned_embeddings


class Sample(NamedTuple):
    """A signature or a fingerprint as a model sees it."""

    features: Features
    """One row."""
    logit: float = 0.0
    """What the detection head says of a signature."""
    turned: NDArray[np.floating] | None = None
    """The embeddings of a print at several rotations, turns x 1 x width."""
    inverted: NDArray[np.floating] | None = None
    """The same with the print upside down."""


def read_sample(model: LoadedModel, file: Path, picture: Path) -> Sample:
    """Reads a picture.

    Args:
        model: The model.
        file: The file it was read from, for error messages.
        picture: An image of the signature or of the fingerprint.

    Raises:
        UsageError: If the model is for neither, or the image cannot be used.
    """
    about = model.metadata
    changed = (about.preprocessing or {}).get("obfuscation")
    if changed and about.scan is not None:
        raise UsageError(
            f"{file} was trained on pictures that {changed} changed, and yours are not: train a "
            "model without obfuscation"
        )
    if isinstance(about.scan, PrintScan):
        found = _print(model, about.scan, picture)
    elif about.scan is not None:
        found = _signature(model, about.scan, picture)
    else:
        raise UsageError(
            f"{file} is not a model of signatures or fingerprints: it was trained on {about.data}"
        )
    if not np.isfinite(found.features).all():
        raise UsageError(f"{file}: the model's features of {picture} are not finite")
    return found


def _signature(model: LoadedModel, scan: Scan, picture: Path) -> Sample:
    page = read_page(picture)
    wrong = complaint(page, scan.size)
    if wrong:
        raise UsageError(f"{picture} {wrong}")
    inputs = ink(torch.from_numpy(scan.prepared(page)[None, None].copy()))
    detector = model.metadata.outputs.index("detect")
    found, logits = features_and_logits(model.apply, inputs, model.metadata.views, detector)
    return Sample(found, float(logits[0]))


def _print(model: LoadedModel, scan: PrintScan, picture: Path) -> Sample:
    page = read_page(picture)
    found = quality(page)
    if found < LEAST:
        raise UsageError(
            f"{picture} shows no clear fingerprint (quality {found} of 100, at least {LEAST} is "
            "needed): take another impression at 500 pixels per inch"
        )
    inputs = grey(torch.from_numpy(scan.prepared(page)[None, None].copy()))
    place = model.metadata.outputs.index("verify")
    turned, inverted = (
        turned_embeddings(model.apply, inputs, place, around) for around in (0.0, 180.0)
    )
    return Sample(turned[0], turned=turned, inverted=inverted)
