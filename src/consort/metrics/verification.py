"""Verifying signatures with a model's encoder, whatever its heads have learnt."""

from __future__ import annotations

import torch

from consort.data.examples import Examples
from consort.errors import UsageError
from consort.metrics.writer_dependent import Signatures, WriterDependent
from consort.models.multitask import MultiTaskModel
from consort.scoring import BATCH
from consort.tasks.signature import claimed_user


def verification_scores(
    model: MultiTaskModel,
    protocol: WriterDependent,
    tested: Examples,
    enrolled: Examples | None = None,
    seed: int = 0,
) -> dict[str, float]:
    """The metrics of `WriterDependent` with `wd_` before their names.

    For users the model was trained on, `enrolled` are the signatures it learnt from and `tested`
    those it has not seen; for unseen users there is no `enrolled`, and `tested` gives both.
    """
    known = None if enrolled is None else signatures_of(model, enrolled)
    found = protocol.metrics(signatures_of(model, tested), known, seed)
    return {f"wd_{name}": value for name, value in found.items()}


@torch.inference_mode()
def signatures_of(model: MultiTaskModel, examples: Examples) -> Signatures:
    """What the encoder makes of signatures in evaluation mode."""
    if not {"identify", "detect"} <= examples.targets.keys():
        raise UsageError("verification is for signatures: data with the tasks identify and detect")
    model.eval()
    parts = [model.encoder(batch.inputs).flatten(1) for batch in examples.batches(BATCH)]
    return Signatures(
        torch.cat(parts or [torch.empty(0, 0)]).numpy(),
        claimed_user(examples.targets["identify"]).numpy(),
        examples.targets["detect"].bool().numpy(),
    )
