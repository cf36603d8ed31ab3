"""Writes the scores of a run's clients as files, for `consort metrics` and for Bob."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from consort.core.randomness import derive
from consort.data.examples import Examples, Splits
from consort.domains.fingerprints.task import distance, impostor_pairs
from consort.domains.signatures.unseen import Verifying
from consort.domains.signatures.verification import genuine_ones, signatures_of
from consort.domains.signatures.writer_dependent import Signatures, WriterDependent
from consort.errors import UsageError
from consort.experiment.opening import open_run
from consort.experiment.recipe import Recipe
from consort.experiment.trained import trained_model
from consort.models.multitask import MultiTaskModel
from consort.results.score_files import (
    DEVELOPMENT,
    EVALUATION,
    SKILLED,
    ScoredProbe,
    ScoreTable,
)
from consort.training.scoring import BATCH

FOLDER = "scores"
"""The folder of score files in the folder of a run, with one folder for each client."""


def write_scores(folder: Path) -> list[Path]:
    """Writes the scores of every client of a run that verifies something.

    Development scores are of validation data, evaluation scores of test data; references come from
    training data. Signatures are scored by one draw of the writer-dependent protocol of the
    recipe, fingerprints by the distance of the two images of each pair.

    Args:
        folder: The folder of a finished run.

    Returns:
        The files that were written.

    Raises:
        UsageError: If no client has a task of verification.
    """
    opened = open_run(folder)
    protocol = _protocol(opened.recipe)
    written = []
    for client in opened.about["clients"]:
        tables = _tables(folder, client, protocol)
        for name, table in tables.items():
            path = folder / FOLDER / client / name
            table.save(path)
            written.append(path)
    if not written:
        raise UsageError(f"{folder}: no client verifies signatures or fingerprints: leave --scores")
    return written


def _protocol(recipe: Recipe) -> WriterDependent:
    asked = recipe.examinations.get("verification")
    return asked.verification if isinstance(asked, Verifying) else WriterDependent()


def _tables(folder: Path, client: str, protocol: WriterDependent) -> dict[str, ScoreTable]:
    trained = trained_model(folder, client)
    splits = {DEVELOPMENT: trained.data.validation, EVALUATION: trained.data.test}
    tasks = trained.data.train.targets
    if {"identify", "detect"} <= tasks.keys():
        rows = {
            name: _of_signatures(trained.model, trained.data, examples, name, protocol)
            for name, examples in splits.items()
        }
    elif "verify" in tasks:
        rows = {name: _of_pairs(trained.model, examples) for name, examples in splits.items()}
    else:
        return {}
    return {name: ScoreTable(tuple(found)) for name, found in rows.items()}


def _of_signatures(
    model: MultiTaskModel,
    data: Splits,
    examples: Examples,
    name: str,
    protocol: WriterDependent,
) -> Iterator[ScoredProbe]:
    known, tested = signatures_of(model, genuine_ones(data.train)), signatures_of(model, examples)
    return signature_rows(tested, known, protocol, derive(0, name))


def signature_rows(
    tested: Signatures, known: Signatures | None, protocol: WriterDependent, seed: int
) -> Iterator[ScoredProbe]:
    """The comparisons of one draw of the writer-dependent protocol.

    Args:
        tested: The signatures to test with.
        known: The signatures to draw references from; None for some of `tested`.
        protocol: The protocol.
        seed: The seed of the draw.
    """
    drawn = protocol.draw(tested, known, np.random.default_rng(seed))
    for user, scores in protocol.scores(tested, known, np.random.default_rng(seed)).items():
        name = f"user-{user}"
        for number, score in enumerate(scores.genuine):
            yield ScoredProbe(name, name, f"{name}-genuine-{number}", "", float(score))
        for number, score in enumerate(scores.skilled):
            key = f"{name}-forged-{number}"
            yield ScoredProbe(name, f"forger-of-{name}", key, SKILLED, float(score))
        others = ((o, n) for o in drawn.genuine if o != user for n in range(len(drawn.genuine[o])))
        for (other, number), score in zip(others, scores.random, strict=True):
            writer = f"user-{other}"
            yield ScoredProbe(name, writer, f"{writer}-genuine-{number}", "", float(score))


@torch.inference_mode()
def _of_pairs(model: MultiTaskModel, examples: Examples) -> Iterator[ScoredProbe]:
    model.eval()
    outputs = [model(batch.inputs)["verify"] for batch in examples.batches(BATCH)]
    if not outputs:
        return iter(())
    left, right = torch.cat(outputs).double().unbind(1)
    fingers = examples.targets["verify"]
    first, second = impostor_pairs(fingers)
    own = torch.arange(len(fingers))
    pairs = torch.cat([own, first]), torch.cat([own, second])
    scores = -distance(left[pairs[0]], right[pairs[1]])
    return iter(
        [
            ScoredProbe(
                f"finger-{fingers[one]}", f"finger-{fingers[other]}", f"pair-{other}", "", score
            )
            for one, other, score in zip(
                *(part.tolist() for part in pairs), scores.tolist(), strict=True
            )
        ]
    )
