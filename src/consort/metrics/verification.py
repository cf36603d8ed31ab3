"""Verifying signatures with a model's encoder, whatever its heads have learnt."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from consort.data.examples import Examples, Splits
from consort.errors import UsageError
from consort.messages import Payload
from consort.metrics.writer_dependent import Signatures, WriterDependent
from consort.models.multitask import MultiTaskModel
from consort.scoring import BATCH, measure
from consort.tasks import Task
from consort.tasks.signature import claimed_user


@dataclass(frozen=True)
class Verification:
    """What is measured beside the metrics of the tasks; the draws are the same for everybody."""

    protocol: WriterDependent
    seed: int = 0
    unseen: Callable[[], Examples] | None = None
    """Brings signatures of users nobody trains on into memory."""

    def of_own_users(self, model: MultiTaskModel, data: Splits) -> dict[str, float]:
        """Personalisation: references are what the client trains on."""
        return verification_scores(model, self.protocol, data.test, data.train, self.seed)

    def of_unseen_users(self, model: MultiTaskModel, tasks: Mapping[str, Task]) -> Payload:
        """Generalisation: a split of its own for the detection head and for the features."""
        if self.unseen is None:
            return {}
        strangers = self.unseen()
        metrics = measure(model, {"detect": tasks["detect"]}, strangers)["detect"]
        metrics |= verification_scores(model, self.protocol, strangers, None, self.seed)
        return {"unseen": {"n": len(strangers), "tasks": {"detect": metrics}}}


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
