"""Evaluates a model on a client's validation and test examples."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from consort.core.messages import Payload
from consort.data.examples import Examples, Splits
from consort.models.multitask import MultiTaskModel
from consort.tasks import Calibrated, Meter, Task

BATCH = 200  # larger batches do not fit in the cache and are slower
_PIXELS = 1 << 19  # pixels of a batch, where outputs are as large as images


def score(model: MultiTaskModel, tasks: Mapping[str, Task], data: Splits) -> Payload:
    """Evaluates a model on validation and test data, in evaluation mode.

    Args:
        model: The model; where it is configured so, BatchNorm statistics are recomputed first.
        tasks: The tasks to evaluate.
        data: The client's data.

    Returns:
        `{split: {"n": examples, "tasks": {task: {metric: value}}}}`, without empty splits.
    """
    if model.batchnorm == "recompute":
        recompute_statistics(model, data.train)
    model.eval()
    splits = {"validation": data.validation, "test": data.test}
    read = {name: metered(model, tasks, part) for name, part in splits.items() if len(part)}
    for name, meter in read.get("test", {}).items():
        if "validation" in read and isinstance(meter, Calibrated):
            meter.calibrate(read["validation"][name])
    found: Payload = {
        name: {"n": len(splits[name]), "tasks": {t: meter.compute() for t, meter in meters.items()}}
        for name, meters in read.items()
    }
    for metric, examples in data.extra.items():
        if len(examples):
            for name, metrics in measure(model, tasks, examples).items():
                found["test"]["tasks"][name][metric] = metrics["accuracy"]
    return found


def measure(
    model: MultiTaskModel, tasks: Mapping[str, Task], examples: Examples
) -> dict[str, dict[str, float]]:
    """Computes the metrics of all tasks, in the mode that the model is in.

    Args:
        model: The model.
        tasks: The tasks to evaluate.
        examples: The examples to evaluate on.

    Returns:
        The metrics by task.
    """
    return {name: meter.compute() for name, meter in metered(model, tasks, examples).items()}


@torch.inference_mode()
def metered(
    model: MultiTaskModel, tasks: Mapping[str, Task], examples: Examples
) -> dict[str, Meter]:
    """Runs a model on examples and collects its outputs in meters.

    Args:
        model: The model.
        tasks: The tasks to evaluate.
        examples: The examples to evaluate on.

    Returns:
        One meter per task, updated with all examples.
    """
    meters = {name: task.meter() for name, task in tasks.items()}
    for batch in examples.batches(batch_size(tasks, examples)):
        outputs = model(batch.inputs, tasks)
        for name, meter in meters.items():
            meter.update(outputs[name], batch.targets[name])
    return meters


def batch_size(tasks: Mapping[str, Task], examples: Examples) -> int:
    """How many of the `examples` are evaluated at a time: fewer if `tasks` predict every pixel."""
    if not any(getattr(task, "dense", False) for task in tasks.values()):
        return BATCH
    return max(1, min(BATCH, _PIXELS // examples.tensor[0, 0].numel()))


@torch.inference_mode()
def recompute_statistics(model: nn.Module, examples: Examples) -> None:
    """Replaces BatchNorm's running statistics by their mean over batches.

    Args:
        model: The model, which is changed in place.
        examples: The examples; a batch of one is left out, because it has no variance.
    """
    layers = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    momenta = [layer.momentum for layer in layers]
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None
    model.train(len(examples) > 1)
    try:
        for batch in examples.batches(BATCH):
            if len(batch) > 1:
                model(batch.inputs)
    finally:
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum
