"""Enrolling a person by a few signatures, and verifying another signature."""

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
from consort.experiment.opening import open_run
from consort.use.calibration import MOST_REFERENCES, similarity, threshold
from consort.use.export import export
from consort.use.formats import Usable, read_model
from consort.use.template import Template, Terms


@dataclass(frozen=True)
class Decision:
    """Whether a signature is accepted, and why."""

    user: str
    score: float
    threshold: float

    @property
    def accepted(self) -> bool:
        """The score reaches the threshold."""
        return self.score >= self.threshold


def enroll(
    source: Path,
    client: str | None,
    user: str,
    references: Sequence[Path],
    out: Path,
    far: float | None = None,
) -> Template:
    """Writes the template of a user; `source` is the folder of a run, or a model's file."""
    if not 1 <= len(references) <= MOST_REFERENCES:
        raise UsageError(f"give 1 to {MOST_REFERENCES} references, not {len(references)}")
    file = model_file(source, client)
    model = read_model(file)
    if client not in (None, model.facts.client):
        raise UsageError(f"{source} is the model of {model.facts.client}, not of {client}")
    features = np.concatenate([features_of(model, file, picture) for picture in references])
    try:
        lowest, errors = threshold(model.facts.calibration or {}, len(references), far)
    except Failure as error:
        raise Failure(f"{source}: {error}") from error
    where = os.path.relpath(file.resolve(), out.resolve().parent)
    terms = Terms(user, lowest, errors.far, errors.frr, where, digest(file))
    template = Template(terms, features)
    template.save(out)
    return template


def verify(path: Path, query: Path, file: Path | None = None) -> Decision:
    """Compares a signature with a template, by the model it was made with."""
    template = Template.load(path)
    terms = template.terms
    file = file or path.resolve().parent / terms.model
    if not file.is_file():
        raise UsageError(f"{path}: its model is not at {file}: say where with --model FILE")
    if digest(file) != terms.digest:
        raise UsageError(f"{path} was made with another model than {file}: enroll the user again")
    found = features_of(read_model(file), file, query)
    return Decision(terms.user, float(similarity(template.references, found)[0]), terms.threshold)


def model_file(source: Path, client: str | None) -> Path:
    """The file itself, or for the folder of a run the client's model, exported there once."""
    if not source.is_dir():
        return source
    clients = open_run(source).about["clients"]
    if client is None or client not in clients:
        raise UsageError(f"{source}: --client {did_you_mean(client or '', clients)}")
    rounds = sorted(source.glob("round-*.ckpt"))
    path = source / "models" / f"{client}-{rounds[-1].stem if rounds else ''}.pt"
    if not path.is_file():
        export(source, client, path)
    return path


@torch.inference_mode()
def features_of(model: Usable, file: Path, picture: Path) -> Features:
    """One row: what the model sees in the picture of a signature."""
    if model.facts.scan is None:
        raise UsageError(f"{file} is no model of signatures: it was trained on {model.facts.data}")
    image = model.facts.scan.read(picture)
    if not image.any():
        raise UsageError(f"{picture} shows no signature: the page is empty")
    features, *_ = model.apply(ink(torch.from_numpy(image[None, None].copy())))
    found: Features = features.numpy()
    if not np.isfinite(found).all():
        raise UsageError(f"{file}: the model's features of {picture} are not finite")
    return found


def digest(file: Path) -> str:
    """Equal for files of equal content."""
    return hashlib.blake2b(file.read_bytes(), digest_size=16).hexdigest()
