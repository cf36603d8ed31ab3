"""Optimisers that outlive a round: their moments stay in the client's state.

A client that creates its optimiser once, as the released code of some papers does, continues in
every round with the momentum of the round before, whatever the server has made of its model.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from consort.core.params import Params
from consort.training.client import Client
from consort.training.optimizers import Adam, Optimizer, Sgd

_MOMENTS = {Sgd: ("velocity",), Adam: ("first", "second")}


def key_of(client: Client) -> str:
    """The entry of the client's state for its present training.

    A call may train several models, or parts of one, always in the same order: each of these
    trainings has an optimiser of its own.

    Args:
        client: The client.
    """
    return f"optimizer {client.trainings}"


def recall_moments(
    optimizer: Optimizer, client: Client, names: Sequence[str], values: Sequence[Tensor]
) -> None:
    """Gives a new optimiser the moments that the client has kept for the same parameters.

    Args:
        optimizer: The optimiser, which has taken no step.
        client: The client.
        names: The names of the parameters that it will update.
        values: Their values, in the same order.
    """
    kept = client.state.get(key_of(client))
    if kept is None or kept["names"] != list(names):
        return
    for moment in _MOMENTS[type(optimizer)]:
        if moment in kept:
            pairs = zip(names, values, strict=True)
            found = [torch.empty_like(value).copy_(kept[moment][name]) for name, value in pairs]
            setattr(optimizer, moment, found)
    if isinstance(optimizer, Adam):
        optimizer.steps = kept["steps"]


def keep_moments(optimizer: Optimizer, client: Client, names: Sequence[str]) -> None:
    """Stores the moments of an optimiser in the client's state.

    Args:
        optimizer: The optimiser after its last step.
        client: The client.
        names: The names of the parameters that it updates.
    """
    kept: dict[str, object] = {"names": list(names)}
    for moment in _MOMENTS[type(optimizer)]:
        if tensors := getattr(optimizer, moment):
            kept[moment] = Params(dict(zip(names, map(_copied, tensors), strict=True)))
    if isinstance(optimizer, Adam):
        kept["steps"] = optimizer.steps
    client.state[key_of(client)] = kept


def _copied(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu").clone(memory_format=torch.contiguous_format)
