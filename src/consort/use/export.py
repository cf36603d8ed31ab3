"""From a run to a file that holds one client's model."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from consort.data.examples import Examples
from consort.domains.signatures.scan import Scan
from consort.errors import Failure
from consort.models.combined import Encoders
from consort.training.scoring import BATCH
from consort.use.calibration import calibrated
from consort.use.facts import Facts
from consort.use.formats import (
    ENCODER,
    Apply,
    Outputs,
    check_suffix,
    read_model,
    write_encoder,
    write_model,
)
from consort.use.trained import Trained, trained_model

LARGEST_DIFFERENCE = 1e-4


class Exported(NamedTuple):
    """What was written, and how near it comes to the model in the run."""

    facts: Facts
    difference: float
    examples: int
    encoder: bool = False
    """Whether the file has the encoder's parameters only, which are those in the run."""


def export(folder: Path, client: str, path: Path) -> Exported:
    """Writes a client's model to a file, and keeps the file only if it computes the same.

    A file that ends in .safetensors takes the encoder's parameters as they are.
    """
    encoder = path.suffix == ENCODER
    if not encoder:
        check_suffix(path)
    trained = trained_model(folder, client)
    outputs = Outputs(trained.model.eval(), tuple(trained.model.heads))
    splits = trained.data.test, trained.data.validation, trained.data.train
    checked = next(examples for examples in splits if len(examples))
    facts = _facts(trained, outputs, checked.inputs[0])
    if encoder:
        if isinstance(trained.model.encoder, Encoders):
            raise Failure(
                f"{path} was not written: two models share the tasks of {client}, each with an "
                "encoder of its own; write .pt or .onnx, which hold both"
            )
        write_encoder(path, trained.model.encoder, facts)
        return Exported(facts, 0.0, 0, encoder=True)
    draft = path.with_name(f".{path.name}.draft{path.suffix}")
    try:
        write_model(draft, outputs, facts, _two(checked.inputs).contiguous())
        difference = _difference(outputs, read_model(draft).apply, checked)
        if not difference <= LARGEST_DIFFERENCE:
            raise Failure(
                f"{path} was not written: its scores would differ from the model's by "
                f"{difference:.1g}, more than {LARGEST_DIFFERENCE:.0g}; try the other format"
            )
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return Exported(facts, difference, len(checked))


def _two(inputs: Tensor) -> Tensor:
    """A batch of one would be taken for a batch that is always one."""
    return inputs[[0, -1]]


def _facts(trained: Trained, outputs: Outputs, example: Tensor) -> Facts:
    about = trained.about["clients"][trained.client]
    scan = about["scan"] if {"identify", "detect"} <= set(outputs.tasks) else None
    return Facts(
        client=trained.client,
        algorithm=trained.about["algorithm"],
        seed=trained.about["seed"],
        round=trained.round,
        architecture=about["model"],
        data=about["data"],
        shape=tuple(example.shape),
        dtype=str(example.dtype).removeprefix("torch."),
        tasks=outputs.tasks,
        scan=scan and Scan.of(scan),
        calibration=calibrated(trained.model, trained.data) if scan else None,
    )


@torch.inference_mode()
def _difference(outputs: Outputs, apply: Apply, examples: Examples) -> float:
    """The largest difference between any two outputs for any of the examples."""
    largest = torch.zeros(())
    for batch in examples.batches(BATCH):
        for one, other in zip(outputs(batch.inputs), apply(batch.inputs), strict=True):
            largest = torch.maximum(largest, (one - other).abs().max())  # keeps NaN
    return float(largest)
