"""The client's half of secure aggregation: what it tells of its keys, and how it hides an answer.

Bonawitz, Ivanov, Kreuter, Marcedone, McMahan, Patel, Ramage, Segal and Seth: Practical Secure
Aggregation for Privacy-Preserving Machine Learning, CCS 2017, Figure 4, without signatures.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from consort.core.messages import Payload, State
from consort.core.params import Params
from consort.errors import Failure, Refused
from consort.protection.secure import masks
from consort.protection.secure.masks import as_bytes, as_rows

KEYS, SHARES, OPEN = "secure.keys", "secure.shares", "secure.open"
"""What a client is asked around the question itself, as the methods of calls."""
HIDDEN_AMONG = "hidden_among"
"""In the payload of a call whose answer is to be masked: the clients that mask together."""
Needed = Callable[[int], int]
"""How many of so many clients must stay until the end of a round."""
MEMORY = "secure aggregation"
"""Where a client remembers its keys, until it has opened its shares."""


def keys(_: Needed, client: str, state: State) -> Payload:  # noqa: ARG001
    """Two new keys, one for shares and one for masks; their public halves are told."""
    private = [masks.new_private(), masks.new_private()]
    state[MEMORY] = {"private": as_rows(private)}
    return {"keys": as_rows([masks.public_of(key) for key in private])}


def shares(
    needed: Needed, client: str, state: State, clients: Sequence[str], keys: Tensor
) -> Payload:
    """What its masks can be taken away with if it is lost: a locked share for everybody."""
    memory = _remembered(state)
    threshold = needed(len(clients))
    seed, (lock, mask) = os.urandom(masks.SEED), map(as_bytes, memory["private"])
    state[MEMORY] = memory | {"seed": as_rows([seed]), "clients": list(clients), "keys": keys}
    both = (masks.shares_of(secret, threshold, len(clients)) for secret in (seed, mask))
    return {
        "shares": as_rows(
            [
                masks.locked(lock, as_bytes(public[0]), b"".join(parts), f"{client} to {other}")
                for other, public, parts in zip(clients, keys, zip(*both, strict=True), strict=True)
            ]
        )
    }


def hidden(
    needed: Needed,
    client: str,
    state: State,
    among: Sequence[str],
    content: Payload,
    means: Mapping[str, Any],
) -> Payload:
    """An answer of which only the sum with those of the others among them can be known.

    Once with the same keys: two answers among different clients would tell their masks apart.
    """
    memory = _remembered(state)
    keys = dict(zip(memory["clients"], memory["keys"], strict=True))
    if client not in among or not set(among) <= keys.keys():
        raise Refused("it is to hide its answer among clients that it has no keys of")
    if len(set(among)) < needed(len(keys)):
        raise Refused(f"it does not hide its answer among {len(set(among))} clients")
    if "among" in memory:
        raise Refused("it has hidden an answer with these keys already")
    state[MEMORY] = memory | {"among": list(among)}
    numbers, layout = laid_out(content, means, len(among))
    masks.add_mask(numbers, as_bytes(memory["seed"]), 1)
    private = as_bytes(memory["private"][1])
    for other in among:
        if other != client:
            seed = masks.agreed_seed(private, as_bytes(keys[other][1]))
            masks.add_mask(numbers, seed, sign(client, other))
    return {"masked": torch.from_numpy(numbers.view(np.int64)), "layout": layout}


def sign(client: str, other: str) -> int:
    """Of two, one adds their common mask and one takes it away."""
    return 1 if client < other else -1


def laid_out(
    content: Payload, means: Mapping[str, str | None], clients: int
) -> tuple[masks.Numbers, list[Any]]:
    """Weighted parameters and then the weights as whole numbers, and what stands where."""
    weights = {name: _weight(name, content) for name in means.values() if name is not None}
    if content.keys() != means.keys() | weights.keys():
        odd = min(content.keys() ^ (means.keys() | weights.keys()))
        raise Failure(f"its answer does not go with [secure]: {odd!r} is in one of both only")
    pieces, layout = [], []
    for key, weight in means.items():
        value = content[key]
        if not isinstance(value, Params):
            raise Failure(f"its answer has {key!r}, which is no parameters: [secure] adds only up")
        for name, tensor in value.items():
            layout.append([key, name, list(tensor.shape), str(tensor.dtype)])
            factor = 1 if weight is None else weights[weight]
            pieces.append(tensor.detach().to(torch.float64).flatten() * factor)
    numbers = masks.fixed_point(torch.cat(pieces) if pieces else torch.zeros(0), clients)
    return np.concatenate([numbers, np.array(list(weights.values()), np.uint64)]), layout


def _weight(name: str, content: Payload) -> int:
    weight = content.get(name)
    if type(weight) is not int or not 0 <= weight < 1 << 32:
        raise Failure(f"its weight {name!r} is {weight!r}: [secure] needs a whole number")
    return weight


def open_shares(
    needed: Needed,
    client: str,
    state: State,
    answered: Sequence[str],
    lost: Sequence[str],
    shares: Tensor,
) -> Payload:
    """Of those who answered the shares of their seeds, of the lost those of their keys.

    Never both of one client: together they would show its answer. Then the keys are forgotten.
    """
    memory = _remembered(state)
    keys = dict(zip(memory["clients"], memory["keys"], strict=True))
    owners = [*answered, *lost]
    if sorted(owners) != sorted(memory.get("among", [])):
        raise Refused("it opens shares of all among whom it has hidden its answer, each once")
    if client not in answered or len(answered) < needed(len(keys)):
        raise Refused(f"it opens no shares for a sum over {len(answered)} clients")
    lock = as_bytes(memory["private"][0])
    opened = [
        masks.unlocked(lock, as_bytes(keys[owner][0]), as_bytes(share), f"{owner} to {client}")
        for owner, share in zip(owners, shares, strict=True)
    ]
    del state[MEMORY]
    found = {"seeds": as_rows([share[: masks.SEED] for share in opened[: len(answered)]])}
    if lost:
        found["keys"] = as_rows([share[masks.SEED :] for share in opened[len(answered) :]])
    return found


def _remembered(state: State) -> dict[str, Any]:
    if MEMORY not in state:
        raise Refused("it has no keys for secure aggregation: they were never made, or used")
    memory: dict[str, Any] = state[MEMORY]
    return memory


STEPS: dict[str, Callable[..., Payload]] = {KEYS: keys, SHARES: shares, OPEN: open_shares}
"""How a client answers what is asked around the question itself."""
