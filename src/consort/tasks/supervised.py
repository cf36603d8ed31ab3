"""A task made of a loss and metrics that a user has."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from consort.core.plugins import find
from consort.core.registry import did_you_mean
from consort.errors import UsageError
from consort.tasks.task import Calibrated, Meter, Task

Loss = Callable[[Tensor, Tensor], Tensor]
"""Computes the mean loss of a batch from outputs and targets."""
LOSS = "loss"
_LOSSES = (
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cross_entropy",
    "hinge_embedding_loss",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "mse_loss",
    "multi_margin_loss",
    "multilabel_margin_loss",
    "multilabel_soft_margin_loss",
    "nll_loss",
    "poisson_nll_loss",
    "smooth_l1_loss",
    "soft_margin_loss",
)
"""The losses of `torch.nn.functional` that take outputs and targets."""


class Supervised:
    """A task made of a loss and metrics, as they are used with PyTorch.

    Args:
        loss: A function of outputs and targets, such as `torch.nn.functional.cross_entropy`, an
            `nn.Module` such as `nn.CrossEntropyLoss()`, the name of a loss in
            `torch.nn.functional`, or the place of a function of your own, as `file.py:function`.
            By default that of `base`.
        metrics: Metrics by name, or a list of them: functions of all outputs and targets of a
            split, metrics of `torchmetrics`, or the places of such.
        outputs: The number of outputs of the head. A network that has a head needs none.
        metric: The metric that represents the task; by default the first one, or that of `base`.
        higher_is_better: Whether a larger value of `metric` is better. By default losses are better
            if they are smaller, metrics of `torchmetrics` say it, and others are better if larger.
        base: A task from which the head, the loss and the metrics are taken that are not given.

    Raises:
        UsageError: If there is no such function, or no such metric.

    Examples:
        >>> import torch
        >>> from torch.nn import functional as F
        >>> from consort import Supervised
        >>> def close(output, target):
        ...     return ((output - target).abs() < 0.5).float().mean()
        >>> task = Supervised(F.mse_loss, metrics=[close], outputs=1)
        >>> task.metric, task.higher_is_better
        ('close', True)
        >>> meter = task.meter()
        >>> meter.update(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 4.0]))
        >>> meter.compute()
        {'loss': 2.0, 'close': 0.5}
    """

    def __init__(
        self,
        loss: Loss | str | None = None,
        metrics: Mapping[str, Any] | Iterable[Any] = (),
        outputs: int | None = None,
        metric: str = "",
        higher_is_better: bool | None = None,
        base: Task | None = None,
    ) -> None:
        if loss is None and base is None:
            raise UsageError("a task needs a loss, such as torch.nn.functional.cross_entropy")
        self.base = base
        self.outputs = outputs
        self.metrics = _named(metrics)
        own = None if loss is None else _function(loss)
        self._loss: Loss = own or base.loss  # type: ignore[union-attr]
        self.metric = metric or (base.metric if base else next(iter(self.metrics), LOSS))
        known = [LOSS, *self.metrics]
        if base is None and not any(f"{self.metric}_".startswith(f"{k}_") for k in known):
            raise UsageError(f"the task has no metric {did_you_mean(self.metric, known)}")
        self.higher_is_better = self._direction() if higher_is_better is None else higher_is_better
        shown = tuple((name, id(measure)) for name, measure in self.metrics.items())
        self._key = (own, shown, outputs, self.metric, self.higher_is_better, base)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Supervised) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        shown = getattr(self._loss, "__name__", type(self._loss).__name__)
        return f"Supervised({shown}, metrics={list(self.metrics)}, outputs={self.outputs})"

    def __getattr__(self, name: str) -> Any:
        """What else `base` has, such as the name of an augmentation."""
        base = self.__dict__.get("base")
        if base is None or name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(base, name)

    def _direction(self) -> bool:
        if self.base is not None and self.metric == self.base.metric:
            return self.base.higher_is_better
        said = getattr(self.metrics.get(self.metric), "higher_is_better", None)
        return self.metric != LOSS if said is None else bool(said)

    def head(self, features: int) -> nn.Module:
        """Builds a linear layer; one output is one number per example.

        Args:
            features: The number of features that it receives.

        Raises:
            UsageError: If the number of outputs is not known.
        """
        if self.outputs is None and self.base is not None:
            return self.base.head(features)
        if self.outputs is None:
            raise UsageError(
                "the network has no head for this task, and the task does not say how many "
                "outputs it has: give `outputs`, or name the network's head"
            )
        layer = nn.Linear(features, self.outputs)
        return nn.Sequential(layer, nn.Flatten(0)) if self.outputs == 1 else layer

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """The mean loss of a batch.

        Args:
            output: The outputs of the model.
            target: The targets of the same examples.
        """
        return self._loss(_one_number(output, target), target)

    def check(self, targets: Tensor) -> None:
        """Checks targets before anything is trained, as `base` does, or for cross entropy.

        Args:
            targets: The targets of a client.

        Raises:
            UsageError: If a target is not a class.
        """
        from consort.tasks.classification import check_labels

        check = getattr(self.base, "check", None)
        if targets.is_floating_point() and not bool(torch.isfinite(targets).all()):
            raise UsageError("targets are not finite (NaN or infinite): repair or remove them")
        if check:
            check(targets)
        elif self.outputs and self._loss is F.cross_entropy:
            check_labels(targets, self.outputs)

    def meter(self) -> Meter:
        """A new meter of the loss and of all metrics."""
        base = self.base.meter() if self.base else None
        kind = CalibratedMeter if isinstance(base, Calibrated) else SupervisedMeter
        return kind(self._loss, self.metrics, base, self.metric)


class SupervisedMeter:
    """Accumulates a loss and metrics.

    Args:
        loss: The loss.
        metrics: The metrics by name.
        base: A meter whose metrics are reported as well.
        metric: The metric that must be among those that are found.
    """

    def __init__(
        self, loss: Loss, metrics: Mapping[str, Any], base: Meter | None, metric: str = LOSS
    ) -> None:
        self._metric = metric
        self._loss_of = loss
        self._metrics = {name: _fresh(measure) for name, measure in metrics.items()}
        self._base = base
        self._keeps = any(not _accumulates(measure) for measure in self._metrics.values())
        self._seen: list[tuple[Tensor, Tensor]] = []
        self._loss, self._count = 0.0, 0

    def update(self, output: Tensor, target: Tensor) -> None:
        """Adds a batch of `output` and `target`."""
        output = _one_number(output, target)
        if self._base is not None:
            self._base.update(output, target)
        self._loss += float(self._loss_of(output, target)) * len(target)
        self._count += len(target)
        for measure in self._metrics.values():
            if _accumulates(measure):
                measure.update(output, target)
        if self._keeps:
            self._seen.append((output, target))

    def compute(self) -> dict[str, float]:
        """The mean loss and all metrics of all batches so far."""
        found = self._base.compute() if self._base is not None else {}
        found[LOSS] = self._loss / max(self._count, 1)
        if self._keeps:
            outputs, targets = (torch.cat(column) for column in zip(*self._seen, strict=True))
        for name, measure in self._metrics.items():
            value = measure.compute() if _accumulates(measure) else measure(outputs, targets)
            found |= _numbers(name, value)
        if self._metric not in found:
            raise UsageError(f"the task has no metric {did_you_mean(self._metric, found)}")
        return found


class CalibratedMeter(SupervisedMeter):
    """The same, with a base that takes something from validation data."""

    def calibrate(self, validation: Meter) -> None:
        """Adopts what was determined on the data of the meter `validation`."""
        if isinstance(validation, SupervisedMeter) and validation._base is not None:
            self._base.calibrate(validation._base)  # type: ignore[union-attr]


def _one_number(output: Tensor, target: Tensor) -> Tensor:
    """Outputs of one column as one number per example, where targets are that: else they broadcast.

    Args:
        output: The outputs of the model.
        target: The targets of the same examples.
    """
    column = output.ndim == 2 and output.shape[1] == 1 and target.ndim == 1
    return output[:, 0] if column and target.is_floating_point() else output


def _function(place: Loss | str) -> Loss:
    if not isinstance(place, str):
        if not callable(place):
            raise UsageError(f"a loss is a function of outputs and targets, not a {place!r}")
        return place
    if ":" not in place and place not in _LOSSES:
        raise UsageError(
            f"there is no loss {did_you_mean(place, _LOSSES)}; write one of your own as "
            "file.py:function"
        )
    found = find("losses", place) if ":" in place else getattr(F, place)
    if not callable(found):
        raise UsageError(f"{place} is not a function of outputs and targets")
    loss: Loss = found() if isinstance(found, type) else found
    return loss


def _named(metrics: Mapping[str, Any] | Iterable[Any]) -> dict[str, Any]:
    if isinstance(metrics, str):
        metrics = [metrics]
    if not isinstance(metrics, Mapping):
        metrics = {_name(measure): measure for measure in metrics}
    return {name: _measure(measure) for name, measure in metrics.items()}


def _name(measure: Any) -> str:
    if isinstance(measure, str):
        return measure.rpartition(":")[2]
    return str(getattr(measure, "__name__", type(measure).__name__))


def _measure(measure: Any) -> Any:
    found = find("metrics", measure) if isinstance(measure, str) and ":" in measure else measure
    if isinstance(found, type):
        found = found()
    if not callable(found):
        raise UsageError(
            f"there is no metric {measure!r}: give a function of outputs and targets, a metric of "
            "torchmetrics, or the place of one, as file.py:function"
        )
    return found


def _accumulates(measure: Any) -> bool:
    """Whether a metric is updated batch by batch, as those of `torchmetrics` are."""
    return hasattr(measure, "update") and hasattr(measure, "compute")


def _fresh(measure: Any) -> Any:
    if not _accumulates(measure):
        return measure
    copied = copy.deepcopy(measure)
    copied.reset()
    return copied


def _numbers(name: str, value: Any) -> dict[str, float]:
    if isinstance(value, Mapping):
        return {f"{name}_{key}": float(part) for key, part in value.items()}
    if isinstance(value, Tensor) and value.numel() != 1:
        raise UsageError(
            f"metric {name!r} returns {value.numel()} values where one number is expected: choose "
            "a mean, such as average = 'macro'"
        )
    return {name: float(value)}
