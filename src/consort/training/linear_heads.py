"""Heads that a server can run and train: linear layers with ReLU between them."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from consort.core.params import Params
from consort.core.roster import Roster
from consort.errors import UsageError

_DIMENSIONS = {"weight": 2, "bias": 1}


def linear_heads(roster: Roster, algorithm: str) -> Params:
    """The common initial heads of all clients, for a server that runs them.

    Args:
        roster: The clients and their models.
        algorithm: The name of the algorithm, for the error message.

    Returns:
        The parameters of the heads.

    Raises:
        UsageError: If a head has other layers than linear ones.
    """
    heads = roster.shared("heads", "decoders")
    for name, tensor in heads.items():
        part = name.rpartition(".")[-1]
        if not name.startswith("heads.") or _DIMENSIONS.get(part) != tensor.ndim:
            raise UsageError(
                f"{algorithm} needs heads of linear layers, which the server runs, but {name!r} "
                "belongs to another layer: choose an algorithm such as lg_fedavg"
            )
    return heads


def head_output(head: Params, features: Tensor) -> Tensor:
    """Applies a head of linear layers with ReLU between them.

    Args:
        head: The parameters of the head, from the first layer to the last.
        features: One row of features per example.

    Returns:
        One row of outputs per example.
    """
    output = features
    for number, name in enumerate(name for name in head if name.endswith("weight")):
        bias = head.get(f"{name.removesuffix('weight')}bias")
        output = F.linear(output.relu() if number else output, head[name], bias)
    return output


def split_last(head: Params) -> tuple[Params, Params]:
    """Splits a head of linear layers into the layers before the last one, and the last one.

    Args:
        head: The parameters of the head, from the first layer to the last.
    """
    *_, last = (name.removesuffix("weight") for name in head if name.endswith("weight"))
    names = [name for name in head if name.startswith(last)]
    return (
        Params({name: tensor for name, tensor in head.items() if name not in names}),
        Params({name: head[name] for name in names}),
    )


def class_loss(output: Tensor, labels: Tensor) -> Tensor:
    """The mean cross entropy.

    Args:
        output: One row of logits per example; a single one is that of class 1 against class 0.
        labels: The class of each example.

    Returns:
        The mean over the examples.
    """
    if output.shape[1] == 1:
        return F.binary_cross_entropy_with_logits(output[:, 0], labels.to(output.dtype))
    return F.cross_entropy(output, labels)
