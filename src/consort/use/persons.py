"""Enrols users with a few genuine signatures or fingerprints, and verifies further ones."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from consort.core.registry import did_you_mean
from consort.domains.fingerprints.scan import PrintScan
from consort.domains.signatures.enrolment import machine
from consort.domains.signatures.writer_dependent import Features
from consort.errors import Failure, UsageError
from consort.experiment.opening import open_run
from consort.use.calibration import (
    FUSED,
    MOST_REFERENCES,
    SVM,
    best_method,
    similarity,
    threshold,
    trials_with,
)
from consort.use.export import export
from consort.use.formats import LoadedModel, read_model
from consort.use.prints import DISTANCE, closeness
from consort.use.reading import Sample, read_sample
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
    method: str | None = None,
    known: bool = False,
    duplicate: bool = False,
) -> Template:
    """Creates the template of a user.

    Args:
        source: The folder of a run, or a model file.
        client: The client whose model is used; needed for a run.
        user: The name of the user.
        references: Images of genuine signatures, or impressions of one finger.
        out: The template file to write.
        far: The largest share of forgeries to accept; `None` chooses the equal error rate.
        method: How signatures are scored; by default what was best on validation data.
        known: Whether the client trained with this user: only then is the detection head
            considered by default.
        duplicate: Whether the same person may already have a template under another name.

    Returns:
        The template.

    Raises:
        UsageError: If the model, the client or an image cannot be used, or a template beside `out`
            is of the same person under another name.
        Failure: If the client has too few signatures to choose a threshold.
    """
    if not 1 <= len(references) <= MOST_REFERENCES:
        raise UsageError(f"expected 1 to {MOST_REFERENCES} references, got {len(references)}")
    file = model_file(source, client)
    model = read_model(file)
    if client not in (None, model.metadata.client):
        raise UsageError(f"{source} is the model of {model.metadata.client}, not of {client}")
    found, about = [read_sample(model, file, picture) for picture in references], model.metadata
    if not duplicate:
        _refuse_duplicates(model, digest(file), user, out, found)
    prints = isinstance(about.scan, PrintScan)
    if prints and method is not None:
        raise UsageError(f"{source} is a model of fingerprints: --method is for signatures")
    if method == FUSED and about.fusion is None:
        raise UsageError(
            f"{source} has no fused score, because {about.client} has no forgeries for validation: "
            "choose --method svm or cosine"
        )
    trials = about.calibration or {}
    try:
        method = DISTANCE if prints else method or best_method(trials, len(references), known)
        chosen = threshold(trials_with(trials, method, len(references)), far)
    except Failure as error:
        raise Failure(f"{source}: {error}") from error
    where = os.path.relpath(file.resolve(), out.resolve().parent)
    rates = {kind: [rate.value, rate.low, rate.high] for kind, rate in chosen.rates.items()}
    whose = "other fingers than it trained with" if prints else "users whom it trained with"
    origin = f"validation data of {about.client} ({about.data}), {whose}"
    features = np.concatenate([sample.features for sample in found])
    metadata = TemplateMetadata(user, method, chosen.threshold, rates, origin, where, digest(file))
    own = machine(features, _background(model)) if method in (SVM, FUSED) else None
    template = Template(metadata, features, own)
    template.save(out)
    return template


def verify(path: Path, query: Path, file: Path | None = None) -> Decision:
    """Compares a signature or fingerprint with a template, using the model of the template.

    Args:
        path: The template file.
        query: An image of the signature or fingerprint.
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
    score = score_of(template, read_model(file), file, query)
    return Decision(metadata.user, score, metadata.threshold)


def score_of(template: Template, model: LoadedModel, file: Path, query: Path) -> float:
    """Scores a signature or fingerprint with a model that is already loaded.

    Args:
        template: The template of the claimed user.
        model: The model of the template.
        file: The file it was read from, for error messages.
        query: An image of the signature or fingerprint.

    Raises:
        UsageError: If the image cannot be used.
    """
    sample = read_sample(model, file, query)
    score, lowest = _score(template, model, sample), template.metadata.threshold
    if sample.inverted is not None and score < lowest:
        upside_down = closeness(template.references, sample.inverted)[0]
        if upside_down >= lowest:
            raise UsageError(f"{query} seems to be upside down: turn the picture and try again")
    return score


def _score(template: Template, model: LoadedModel, sample: Sample) -> float:
    if sample.turned is not None:
        return float(closeness(template.references, sample.turned)[0])
    if template.machine is None:
        return float(similarity(template.references, sample.features)[0])
    scores = template.machine.scores(template.references, _background(model), sample.features)
    if template.metadata.method == FUSED and model.metadata.fusion:
        own, other = model.metadata.fusion
        scores = own * scores + other * sample.logit
    return float(scores[0])


def _refuse_duplicates(
    model: LoadedModel, model_digest: str, user: str, out: Path, found: Sequence[Sample]
) -> None:
    """Looks for a template beside the new one that accepts all references of another name."""
    for path in sorted(out.parent.glob(f"*{out.suffix}")) if out.suffix else ():
        try:
            template = Template.load(path)
        except UsageError:
            continue
        about = template.metadata
        if path.name == out.name or about.user == user or about.digest != model_digest:
            continue
        if all(_score(template, model, sample) >= about.threshold for sample in found):
            raise UsageError(
                f"{path} is of {about.user}, but accepts all references of {user}: if these are "
                "two people, repeat this with --duplicate"
            )


def _background(model: LoadedModel) -> Features:
    if model.metadata.background is None:
        raise Failure("the model file has no background set: export the model again")
    return model.metadata.background.features


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
    clients = open_run(source).about["clients"]
    if client is None or client not in clients:
        raise UsageError(f"{source}: --client {did_you_mean(client or '', clients)}")
    rounds = sorted(source.glob("round-*.ckpt"))
    path = source / "models" / f"{client}-{rounds[-1].stem if rounds else ''}.pt"
    if not path.is_file():
        export(source, client, path)
    return path


def digest(file: Path) -> str:
    """A hash of a file's content."""
    return hashlib.blake2b(file.read_bytes(), digest_size=16).hexdigest()
