"""Verification of signatures with the features of a model's encoder, for any algorithm."""

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
"""The name of the results among those of the tasks, and their main metric."""


@dataclass(frozen=True)
class SignatureVerification:
    """Evaluates how well the features of a model verify signatures; an `EvaluationExtra`."""

    protocol: WriterDependent
    """The protocol of verification."""
    seed: int = 0
    """The seed with which references are drawn."""
    unseen: Mapping[str, Dataset] = field(default_factory=dict)
    """Data of users that no client trains on, by the name of the split in the scores."""

    @property
    def tasks(self) -> dict[str, dict[str, Any]]:
        """The additional entry among the tasks, with its main metric."""
        return {TASK: {"metric": METRIC, "higher_is_better": False}}

    def prepare(self) -> None:
        """Imports scikit-learn once, and not in every worker."""
        import sklearn.svm  # noqa: F401

    def added_to(
        self, scores: Payload, model: MultiTaskModel, data: Splits, client: str, last: bool
    ) -> Payload:
        """Adds the metrics of `WriterDependent` to a client's scores, as `wd_eer` and so on.

        References are drawn from the client's training data: the same ones in every round and for
        every algorithm, so that results are comparable. In the last round, DET curves and the
        scores of unseen users are added too.

        Args:
            scores: The scores so far, by split and task.
            model: The model that is evaluated.
            data: The client's data.
            client: The client's name.
            last: Whether this is the last round.

        Returns:
            The scores with the additional entries.

        Raises:
            UsageError: If the data are not signatures.
        """
        known = signatures_of(model, genuine_ones(data.train))
        for split, examples in (("validation", data.validation), ("test", data.test)):
            if split in scores:
                tested = signatures_of(model, examples)
                seed = derive(self.seed, client, split)
                scores[split]["tasks"][TASK] = self._measured(tested, known, seed, last)
        return scores | (self._of_unseen(model) if last else {})

    def _of_unseen(self, model: MultiTaskModel) -> Payload:
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
    """The genuine signatures among `examples`, which can be references."""
    _refuse_others(examples)
    return examples.take(examples.targets["detect"].nonzero().flatten())


@torch.inference_mode()
def signatures_of(
    model: MultiTaskModel, examples: Examples, prepare: Callable[[Tensor], Tensor] = as_is
) -> Signatures:
    """Computes the features of signatures, in evaluation mode.

    Args:
        model: The model.
        examples: The signatures.
        prepare: Converts inputs to what the model takes.

    Returns:
        The features, the claimed user and the genuineness of each signature.

    Raises:
        UsageError: If the examples are not signatures.
    """
    _refuse_others(examples)
    model.eval()
    batches = (prepare(batch.tensor) for batch in examples.batches(BATCH))
    parts = [model.encoder(inputs).flatten(1) for inputs in batches]
    return Signatures(
        torch.cat(parts or [torch.empty(0, 0)]).numpy(),
        claimed_user(examples.targets["identify"]).numpy(),
        examples.targets["detect"].bool().numpy(),
    )


def _refuse_others(examples: Examples) -> None:
    if not {"identify", "detect"} <= examples.targets.keys():
        raise UsageError(
            "[verification] needs signatures, that is data with the tasks identify and detect: "
            "remove it, or choose other data"
        )
