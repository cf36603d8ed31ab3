"""Heads that a server can run and train by itself: linear layers with ReLU between them."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from consort.core.params import Params
from consort.core.roster import Roster
from consort.errors import UsageError

_DIMENSIONS = {"weight": 2, "bias": 1}


def linear_heads(roster: Roster, algorithm: str) -> Params:
    """The common initial heads, if they are made of linear layers only."""
    heads = roster.shared("heads", "decoders")
    for name, tensor in heads.items():
        part = name.rpartition(".")[-1]
        if not name.startswith("heads.") or _DIMENSIONS.get(part) != tensor.ndim:
            raise UsageError(
                f"{algorithm} runs heads of linear layers on the server, but {name!r} is no part "
                "of such a head: choose an algorithm such as lg_fedavg"
            )
    return heads


def head_output(head: Params, features: Tensor) -> Tensor:
    """What a head of linear layers, with ReLU between them, makes of features."""
    output = features
    for number, name in enumerate(name for name in head if name.endswith("weight")):
        bias = head.get(f"{name.removesuffix('weight')}bias")
        output = F.linear(output.relu() if number else output, head[name], bias)
    return output


def class_loss(output: Tensor, labels: Tensor) -> Tensor:
    """Cross entropy; a single output is the logit of class 1 against class 0."""
    if output.shape[1] == 1:
        return F.binary_cross_entropy_with_logits(output[:, 0], labels.to(output.dtype))
    return F.cross_entropy(output, labels)
