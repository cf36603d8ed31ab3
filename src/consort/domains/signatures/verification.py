"""Verifying signatures with a model's encoder, whatever its heads have learnt."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from consort.core.messages import Payload
from consort.core.randomness import derive
from consort.data.dataset import Dataset, as_is
from consort.data.examples import Examples, Splits
from consort.domains.signatures.tasks import claimed_user
from consort.domains.signatures.writer_dependent import Signatures, WriterDependent, det_curve
from consort.errors import UsageError
from consort.models.multitask import MultiTaskModel
from consort.training.scoring import BATCH

TASK, METRIC = "verify", "wd_eer"
"""The name under which results stand beside those of the tasks, and what stands for it."""


@dataclass(frozen=True)
class SignatureVerification:
    """What a recipe wants to know of features, whichever algorithm they come from.

    An `EvaluationExtra`.
    """

    protocol: WriterDependent
    seed: int = 0
    unseen: Mapping[str, Dataset] = field(default_factory=dict)
    """By split: users that no client trains on."""

    @property
    def tasks(self) -> dict[str, dict[str, Any]]:
        """The error rate stands beside the metrics of tasks, under a name of its own."""
        return {TASK: {"metric": METRIC, "higher_is_better": False}}

    def prepare(self) -> None:
        """Imports the classifiers once, and not in every worker."""
        import sklearn.svm  # noqa: F401

    def added_to(
        self, scores: Payload, model: MultiTaskModel, data: Splits, client: str, last: bool
    ) -> Payload:
        """A client's scores with the metrics of `WriterDependent`, named `wd_eer` and so on.

        References are the signatures the client learnt from. The same ones are drawn in every
        round and for every algorithm, so that all are measured alike. The last round has curves
        too, and scores of the users that no client knows.
        """
        known = signatures_of(model, genuine_ones(data.train))
        for split, examples in (("validation", data.validation), ("test", data.test)):
            if split in scores:
                tested = signatures_of(model, examples)
                seed = derive(self.seed, client, split)
                scores[split]["tasks"][TASK] = self._measured(tested, known, seed, last)
        return scores | (self._of_strangers(model) if last else {})

    def _of_strangers(self, model: MultiTaskModel) -> Payload:
        found = {}
        for split, dataset in self.unseen.items():
            tested = signatures_of(model, dataset.examples, dataset.prepare)
            metrics = self._measured(tested, None, derive(self.seed, split), True)
            found[split] = {"n": len(dataset), "tasks": {TASK: metrics}}
        return found

    def _measured(
        self, tested: Signatures, known: Signatures | None, seed: int, curve: bool
    ) -> Payload:
        draws = self.protocol.draws(tested, known, seed)
        metrics = self.protocol.summary(tested, draws)
        found: Payload = {f"wd_{name}": value for name, value in metrics.items()}
        if curve:
            found["wd_det"] = {f"{far:g}": frr for far, frr in det_curve(draws).items()}
        return found


def genuine_ones(examples: Examples) -> Examples:
    """The signatures that can be references."""
    _refuse_others(examples)
    return examples.take(examples.targets["detect"].nonzero().flatten())


@torch.inference_mode()
def signatures_of(
    model: MultiTaskModel, examples: Examples, prepare: Callable[[Tensor], Tensor] = as_is
) -> Signatures:
    """What the encoder makes of signatures in evaluation mode."""
    _refuse_others(examples)
    model.eval()
    batches = (prepare(batch.inputs) for batch in examples.batches(BATCH))
    parts = [model.encoder(inputs).flatten(1) for inputs in batches]
    return Signatures(
        torch.cat(parts or [torch.empty(0, 0)]).numpy(),
        claimed_user(examples.targets["identify"]).numpy(),
        examples.targets["detect"].bool().numpy(),
    )


def _refuse_others(examples: Examples) -> None:
    if not {"identify", "detect"} <= examples.targets.keys():
        raise UsageError("verification is for signatures: data with the tasks identify and detect")
