"""Switching models, and parts of them, to training mode."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor, nn

from consort.core.params import BUFFERS, has_role, slots
from consort.data.examples import Examples
from consort.errors import UsageError


@contextmanager
def moving(model: nn.Module, only: Sequence[str]) -> Iterator[tuple[list[str], list[Tensor]]]:
    """Switches a model to training mode and freezes what is not trained, in a `with` block.

    Args:
        model: The model.
        only: The roles that are trained; all parameters if it is empty.

    Yields:
        The names and the parameters that are trained.

    Raises:
        UsageError: If no parameter has one of these roles.
    """
    params = {n: p for n, p in slots(model).items() if not has_role(n, BUFFERS)}
    chosen = {
        n: p for n, p in params.items() if not only or any(has_role(n, role) for role in only)
    }
    if not chosen:
        raise UsageError(
            f"the model has no parameters to train in {' or '.join(only)}: choose a model that "
            "has some, such as one with hidden layers"
        )
    frozen = [param for name, param in params.items() if name not in chosen]
    for param in frozen:
        param.requires_grad_(False)
    if not model.training:
        model.train()
    try:
        yield list(chosen), list(chosen.values())
    finally:
        for param in frozen:
            param.requires_grad_(True)


def use_running_statistics_for_one(model: nn.Module, batch: Examples) -> None:
    """Switches to evaluation mode for a batch of one, of which BatchNorm has no variance.

    Args:
        model: The model.
        batch: The next batch; for a larger one, the model is switched to training mode.
    """
    if model.training != (len(batch) > 1):
        model.train(len(batch) > 1)
