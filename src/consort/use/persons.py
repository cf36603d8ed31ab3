"""Enrols users with a few genuine signatures, and verifies further signatures."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from consort.core.registry import did_you_mean
from consort.domains.signatures.dataset import ink
from consort.domains.signatures.writer_dependent import Features
from consort.errors import Failure, UsageError
from consort.run.folder import read_description
from consort.use.calibration import MOST_REFERENCES, similarity, threshold
from consort.use.export import export
from consort.use.formats import LoadedModel, read_model
from consort.use.template import Template, TemplateMetadata


@dataclass(frozen=True)
class Decision:
    """The result of a verification."""

    user: str
    score: float
    threshold: float

    @property
    def accepted(self) -> bool:
        """Whether the score reaches the threshold."""
        return self.score >= self.threshold


def enroll(
    source: Path,
    client: str | None,
    user: str,
    references: Sequence[Path],
    out: Path,
    far: float | None = None,
) -> Template:
    """Creates the template of a user.

    Args:
        source: The folder of a run, or a model file.
        client: The client whose model is used; needed for a run.
        user: The name of the user.
        references: Images of genuine signatures.
        out: The template file to write.
        far: The largest share of forgeries to accept; `None` chooses the equal error rate.

    Returns:
        The template.

    Raises:
        UsageError: If the model, the client or an image cannot be used.
        Failure: If the client has too few signatures to choose a threshold.
    """
    if not 1 <= len(references) <= MOST_REFERENCES:
        raise UsageError(f"expected 1 to {MOST_REFERENCES} references, got {len(references)}")
    file = model_file(source, client)
    model = read_model(file)
    if client not in (None, model.metadata.client):
        raise UsageError(f"{source} is the model of {model.metadata.client}, not of {client}")
    features = np.concatenate([features_of(model, file, picture) for picture in references])
    try:
        lowest, errors = threshold(model.metadata.calibration or {}, len(references), far)
    except Failure as error:
        raise Failure(f"{source}: {error}") from error
    where = os.path.relpath(file.resolve(), out.resolve().parent)
    metadata = TemplateMetadata(user, lowest, errors.far, errors.frr, where, digest(file))
    template = Template(metadata, features)
    template.save(out)
    return template


def verify(path: Path, query: Path, file: Path | None = None) -> Decision:
    """Compares a signature with a template, using the model of the template.

    Args:
        path: The template file.
        query: An image of the signature.
        file: The model file, if it is not where the template says.

    Returns:
        The decision.

    Raises:
        UsageError: If the template, its model or the image cannot be used.
    """
    template = Template.load(path)
    metadata = template.metadata
    file = file or path.resolve().parent / metadata.model
    if not file.is_file():
        raise UsageError(f"{path}: its model {file} is missing: name the file with --model FILE")
    if digest(file) != metadata.digest:
        raise UsageError(
            f"{path} was created with another model than {file}: enroll the user again"
        )
    found = features_of(read_model(file), file, query)
    return Decision(
        metadata.user, float(similarity(template.references, found)[0]), metadata.threshold
    )


def model_file(source: Path, client: str | None) -> Path:
    """The model file to use; for a run, the client's model is exported to its folder first.

    Args:
        source: The folder of a run, or a model file.
        client: The client whose model is used; needed for a run.

    Raises:
        UsageError: If the run has no such client.
    """
    if not source.is_dir():
        return source
    clients = read_description(source)["clients"]
    if client is None or client not in clients:
        raise UsageError(f"{source}: --client {did_you_mean(client or '', clients)}")
    rounds = sorted(source.glob("round-*.ckpt"))
    path = source / "models" / f"{client}-{rounds[-1].stem if rounds else ''}.pt"
    if not path.is_file():
        export(source, client, path)
    return path


@torch.inference_mode()
def features_of(model: LoadedModel, file: Path, picture: Path) -> Features:
    """The features of a signature, as one row.

    Args:
        model: The model.
        file: The file it was read from, for error messages.
        picture: An image of the signature.

    Raises:
        UsageError: If the model is not for signatures, or the image cannot be used.
    """
    if model.metadata.scan is None:
        raise UsageError(
            f"{file} is not a signature model: it was trained on {model.metadata.data}"
        )
    image = model.metadata.scan.read(picture)
    if not image.any():
        raise UsageError(f"{picture} contains no signature: the page is empty")
    features, *_ = model.apply(ink(torch.from_numpy(image[None, None].copy())))
    found: Features = features.numpy()
    if not np.isfinite(found).all():
        raise UsageError(f"{file}: the model's features of {picture} are not finite")
    return found


def digest(file: Path) -> str:
    """A hash of a file's content."""
    return hashlib.blake2b(file.read_bytes(), digest_size=16).hexdigest()
