"""Exports the model of one client of a run to a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from consort.data.examples import Examples, Splits
from consort.domains.fingerprints.scan import PrintScan
from consort.domains.signatures.enrolment import VIEWS
from consort.domains.signatures.scan import Scan
from consort.errors import Failure, UsageError
from consort.experiment.trained import TrainedModel, trained_model
from consort.models.combined import Encoders
from consort.run.run import Run
from consort.training.scoring import BATCH
from consort.use.background import synthetic_background
from consort.use.calibration import SVM, best_method, calibration_scores, error_rate, trials_with
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
from consort.use.metadata import ModelMetadata, scan_of
from consort.use.preprocessing import preprocessing_of
from consort.use.prints import DISTANCE, print_trials

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
    scan = about["scan"] and scan_of(about["scan"])
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
        preprocessing=preprocessing_of(trained.seat) if trained.seat else None,
        **_calibrated(outputs, scan, trained.data),
    )


def _calibrated(outputs: Outputs, scan: Scan | PrintScan | None, data: Splits) -> dict[str, Any]:
    """What enrolling needs; nothing for a model that verifies neither signatures nor prints."""
    if isinstance(scan, PrintScan) and "verify" in outputs.tasks:
        place = 1 + outputs.tasks.index("verify")
        calibration = print_trials(outputs, data.validation, place)
        return {"scan": scan, "calibration": {DISTANCE: calibration}}
    if isinstance(scan, Scan) and {"identify", "detect"} <= set(outputs.tasks):
        return _calibrated_signatures(outputs, scan, data)
    return {}


def _calibrated_signatures(outputs: Outputs, scan: Scan, data: Splits) -> dict[str, Any]:
    """Views are averaged if that is better on validation data."""
    found = []
    for views in (1, VIEWS):
        background = synthetic_background(outputs, scan, views)
        calibration, fusion = calibration_scores(
            outputs, data, background.features, views, 1 + outputs.tasks.index("detect")
        )
        counts = [int(count) for count in calibration[SVM]]
        rate = (
            error_rate(
                trials_with(calibration, best_method(calibration, max(counts), False), max(counts))
            )
            if counts
            else 1.0
        )
        table = {"views": views, "background": background, "calibration": calibration}
        found.append((rate, views, table | {"scan": scan, "fusion": fusion}))
    return min(found, key=lambda one: one[:2])[2]


@torch.inference_mode()
def _difference(outputs: Outputs, apply: Apply, examples: Examples) -> float:
    """The largest absolute difference between the outputs, over all examples."""
    largest = torch.zeros(())
    for batch in examples.batches(BATCH):
        for one, other in zip(outputs(batch.tensor), apply(batch.tensor), strict=True):
            largest = torch.maximum(largest, (one - other).abs().max())  # keeps NaN
    return float(largest)
