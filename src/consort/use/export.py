"""Exports the model of one client of a run to a file."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from consort.data.examples import Examples
from consort.domains.signatures.scan import Scan
from consort.errors import Failure, UsageError
from consort.experiment.trained import TrainedModel, trained_model
from consort.models.combined import Encoders
from consort.run.run import Run
from consort.training.scoring import BATCH
from consort.use.calibration import calibration_scores
from consort.use.formats import (
    STATE,
    Apply,
    Outputs,
    check_suffix,
    read_model,
    write_encoder,
    write_model,
    write_state,
)
from consort.use.metadata import ModelMetadata
from consort.use.preprocessing import preprocessing_of

LARGEST_DIFFERENCE = 1e-4


class Exported(NamedTuple):
    """What was written, and how closely it matches the model in the run."""

    metadata: ModelMetadata
    difference: float
    """The largest difference between the outputs of the file and of the model."""
    examples: int
    """The number of examples on which they were compared."""
    what: str = ""
    """What of the model the file contains, unchanged: `encoder` or `state_dict`; empty for all."""


def export(where: Path | Run, client: str, path: Path, encoder: bool = False) -> Exported:
    """Writes a client's model to a file, and keeps the file only if its outputs are the same.

    Args:
        where: The folder of a run; or the run itself, if it was made in Python.
        client: The client whose model is exported.
        path: The file to write: .pt (TorchScript), .onnx, or .safetensors for the `state_dict`
            alone, with the names that PyTorch has for its entries.
        encoder: Whether to write the parameters of the encoder alone (.safetensors), from which
            other models can start.

    Returns:
        What was written.

    Raises:
        UsageError: If the file name or the client is not valid.
        Failure: If the outputs differ, or the run has no finished round.
    """
    if encoder and path.suffix != STATE:
        raise UsageError(f"{path}: an encoder alone is written to a file that ends in {STATE}")
    if path.suffix != STATE:
        check_suffix(path)
    trained = trained_model(where, client)
    outputs = Outputs(trained.model.eval(), tuple(trained.model.heads))
    splits = trained.data.test, trained.data.validation, trained.data.train
    checked = next(examples for examples in splits if len(examples))
    metadata = _metadata(trained, outputs, checked.tensor[0])
    if encoder:
        if isinstance(trained.model.encoder, Encoders):
            raise Failure(
                f"{path} was not written: {client} has two models with an encoder each; leave out "
                "--encoder, so that the file contains both"
            )
        write_encoder(path, trained.model.encoder, metadata)
        return Exported(metadata, 0.0, 0, "encoder")
    if path.suffix == STATE:
        write_state(path, trained.model, metadata)
        return Exported(metadata, 0.0, 0, "state_dict")
    draft = path.with_name(f".{path.name}.draft{path.suffix}")
    try:
        write_model(draft, outputs, metadata, _batch_of_two(checked.tensor).contiguous())
        difference = _difference(outputs, read_model(draft).apply, checked)
        if not difference <= LARGEST_DIFFERENCE:
            raise Failure(
                f"{path} was not written: its outputs differ from the model's by {difference:.1g}, "
                f"more than {LARGEST_DIFFERENCE:.0g}; try the other format"
            )
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return Exported(metadata, difference, len(checked))


def _batch_of_two(inputs: Tensor) -> Tensor:
    """An example batch; with one row, the exporter would fix the batch size to one."""
    return inputs[[0, -1]]


def _metadata(trained: TrainedModel, outputs: Outputs, example: Tensor) -> ModelMetadata:
    about = trained.about["clients"][trained.client]
    scan = about["scan"] if {"identify", "detect"} <= set(outputs.tasks) else None
    return ModelMetadata(
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
        calibration=calibration_scores(trained.model, trained.data) if scan else None,
        preprocessing=preprocessing_of(trained.seat) if trained.seat else None,
    )


@torch.inference_mode()
def _difference(outputs: Outputs, apply: Apply, examples: Examples) -> float:
    """The largest absolute difference between the outputs, over all examples."""
    largest = torch.zeros(())
    for batch in examples.batches(BATCH):
        for one, other in zip(outputs(batch.tensor), apply(batch.tensor), strict=True):
            largest = torch.maximum(largest, (one - other).abs().max())  # keeps NaN
    return float(largest)
