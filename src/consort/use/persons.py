"""Enrols users with a few genuine signatures, and verifies further signatures."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from consort.core.registry import did_you_mean
from consort.data.page import read_page
from consort.domains.signatures.dataset import ink
from consort.domains.signatures.enrolment import machine
from consort.domains.signatures.quality import complaint
from consort.domains.signatures.writer_dependent import Features
from consort.errors import Failure, UsageError
from consort.experiment.opening import open_run
from consort.metrics.biometric import Scores
from consort.use.calibration import (
    COSINE,
    FUSED,
    MOST_REFERENCES,
    best_method,
    similarity,
    threshold,
    trials_with,
)
from consort.use.export import export
from consort.use.features import features_and_logits
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
    method: str | None = None,
    known: bool = False,
    duplicate: bool = False,
) -> Template:
    """Creates the template of a user.

    Args:
        source: The folder of a run, or a model file.
        client: The client whose model is used; needed for a run.
        user: The name of the user.
        references: Images of genuine signatures.
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
    found = [features_of(model, file, picture) for picture in references]
    features, about = np.concatenate([one for one, _ in found]), model.metadata
    if not duplicate:
        _refuse_duplicates(model, digest(file), user, out, features, [one for _, one in found])
    if method == FUSED and about.fusion is None:
        raise UsageError(
            f"{source} has no fused score, because {about.client} has no forgeries for validation: "
            "choose --method svm or cosine"
        )
    try:
        method = method or best_method(about.calibration or {}, len(references), known)
        chosen = threshold(trials_with(about.calibration or {}, method, len(references)), far)
    except Failure as error:
        raise Failure(f"{source}: {error}") from error
    where = os.path.relpath(file.resolve(), out.resolve().parent)
    rates = {kind: [rate.value, rate.low, rate.high] for kind, rate in chosen.rates.items()}
    origin = f"validation data of {about.client} ({about.data}), users whom it trained with"
    metadata = TemplateMetadata(user, method, chosen.threshold, rates, origin, where, digest(file))
    own = machine(features, _background(model)) if method != COSINE else None
    template = Template(metadata, features, own)
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
    score = score_of(template, read_model(file), file, query)
    return Decision(metadata.user, score, metadata.threshold)


def score_of(template: Template, model: LoadedModel, file: Path, query: Path) -> float:
    """Scores a signature with a model that is already loaded.

    Args:
        template: The template of the claimed user.
        model: The model of the template.
        file: The file it was read from, for error messages.
        query: An image of the signature.

    Raises:
        UsageError: If the image cannot be used.
    """
    found, logit = features_of(model, file, query)
    return float(_scores(template, model, found, np.array([logit]))[0])


def _scores(
    template: Template, model: LoadedModel, found: Features, logits: NDArray[np.float64]
) -> Scores:
    if template.machine is None:
        return similarity(template.references, found)
    scores = template.machine.scores(template.references, _background(model), found)
    if template.metadata.method == FUSED and model.metadata.fusion:
        own, other = model.metadata.fusion
        scores = own * scores + other * logits
    return scores


def _refuse_duplicates(
    model: LoadedModel,
    model_digest: str,
    user: str,
    out: Path,
    features: Features,
    logits: Sequence[float],
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
        if (_scores(template, model, features, np.array(logits)) >= about.threshold).all():
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


def features_of(model: LoadedModel, file: Path, picture: Path) -> tuple[Features, float]:
    """The features of a signature, as one row, and the logit of the detection head.

    Args:
        model: The model.
        file: The file it was read from, for error messages.
        picture: An image of the signature.

    Raises:
        UsageError: If the model is not for signatures, or the image cannot be used.
    """
    about = model.metadata
    if about.scan is None:
        raise UsageError(f"{file} is not a signature model: it was trained on {about.data}")
    page = read_page(picture)
    wrong = complaint(page, about.scan.size)
    if wrong:
        raise UsageError(f"{picture} {wrong}")
    image = about.scan.prepared(page)
    inputs = ink(torch.from_numpy(image[None, None].copy()))
    detector = about.outputs.index("detect")
    found, logits = features_and_logits(model.apply, inputs, about.views, detector)
    if not np.isfinite(found).all():
        raise UsageError(f"{file}: the model's features of {picture} are not finite")
    return found, float(logits[0])


def digest(file: Path) -> str:
    """A hash of a file's content."""
    return hashlib.blake2b(file.read_bytes(), digest_size=16).hexdigest()
