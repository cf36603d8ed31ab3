"""The client's half of secure aggregation: keys, shares of secrets, and masked answers.

Bonawitz, Ivanov, Kreuter, Marcedone, McMahan, Patel, Ramage, Segal and Seth: Practical Secure
Aggregation for Privacy-Preserving Machine Learning, CCS 2017, Figure 4, with signed keys and
without the consistency check.

A client takes each of the four steps once with the same keys, in their order. The keys move to the
next step, on disk if the client is on a machine of its own, before the answer to a step is sent;
whatever a server asks again is refused. New keys replace the old ones at any time.
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
from consort.federation.protection import Request
from consort.protection.secure import masks
from consort.protection.secure.masks import as_bytes, as_rows

KEYS, SHARES, OPEN = "secure.keys", "secure.shares", "secure.open"
"""The methods of the calls that the protocol adds to a call of the algorithm."""
HIDDEN_AMONG = "hidden_among"
"""The entry of a payload with the clients whose answers are masked together."""
Needed = Callable[[int], int]
"""Computes how many clients must stay until the end of a round, from their number."""


def keys(_: Needed, request: Request) -> Payload:
    """Creates two pairs of keys, one for shares and one for masks.

    Args:
        _: Computes how many clients must stay.
        request: The request.

    Returns:
        The public keys, and if the client's site can make one, a proof that they are its keys.
    """
    private = [masks.new_private(), masks.new_private()]
    public = as_rows([masks.public_of(key) for key in private])
    proof = request.site.vouch(_statement(public))
    request.site.keep(request.state, {"step": KEYS, "private": as_rows(private)})
    return {"keys": public} | ({"proof": as_rows([proof])} if proof else {})


def shares(
    needed: Needed,
    request: Request,
    clients: Sequence[str],
    keys: Tensor,
    proofs: Sequence[Tensor] = (),
) -> Payload:
    """Splits the client's secrets into encrypted shares, one for every client.

    With enough shares, the server can remove the client's masks from the sum.

    Args:
        needed: Computes how many clients must stay.
        request: The request.
        clients: All clients that take part.
        keys: Their public keys.
        proofs: The proof of each client that these are its keys; none in a simulation.

    Returns:
        The shares, in the order of `clients`.

    Raises:
        Refused: If the client has no new keys, or the keys are not those of different clients.
    """
    memory = _secrets(request, KEYS)
    client = request.call.client
    _check_number(request, clients)
    _check_keys(request, memory, dict(zip(clients, keys, strict=True)), len(clients))
    told = [as_bytes(proof) for proof in proofs] or [b""] * len(clients)
    for other, public, proof in zip(clients, keys, told, strict=True):
        if other != client:
            request.site.verify(other, _statement(public), proof)
    threshold = needed(len(clients))
    seed, (lock, mask) = os.urandom(masks.SEED), map(as_bytes, memory["private"])
    both = (masks.shares_of(secret, threshold, len(clients)) for secret in (seed, mask))
    locked = [
        masks.locked(lock, as_bytes(public[0]), b"".join(parts), f"{client} to {other}")
        for other, public, parts in zip(clients, keys, zip(*both, strict=True), strict=True)
    ]
    more = {"step": SHARES, "seed": as_rows([seed]), "clients": list(clients), "keys": keys}
    request.site.keep(request.state, memory | more)
    return {"shares": as_rows(locked)}


def _statement(public: Tensor) -> bytes:
    """What a client says about its public keys."""
    return b"keys of secure aggregation " + as_bytes(public)


def _check_number(request: Request, clients: Sequence[str]) -> None:
    """Refuses to hide an answer among fewer clients than the client's owner wants."""
    if len(set(clients)) < request.site.fewest:
        raise Refused(
            f"it hides its answer among {request.site.fewest} clients at least, by its policy, and "
            f"was asked to do so among {len(set(clients))}"
        )


def _check_keys(request: Request, memory: State, keys: Mapping[str, Tensor], clients: int) -> None:
    """Refuses keys that are not one pair for each of several clients, its own among them."""
    own = as_rows([masks.public_of(as_bytes(private)) for private in memory["private"]])
    mine = keys.get(request.call.client)
    if len(keys) < clients or mine is None or not torch.equal(mine, own):
        raise Refused("the keys of secure aggregation are not those of different clients and of it")
    if len({as_bytes(public) for pair in keys.values() for public in pair}) < 2 * clients:
        raise Refused("two clients are said to have the same key for secure aggregation")


def ready(needed: Needed, request: Request, among: Sequence[str]) -> None:
    """Checks that an answer may be masked, before the work for it is done.

    Only one answer is masked with the same keys: the difference of two would reveal their masks.

    Args:
        needed: Computes how many clients must stay.
        request: The request.
        among: The clients whose answers are masked together.

    Raises:
        Refused: If the client has not shared its secrets, has masked an answer with these keys
            before, or has no keys of the others, or there are too few others.
    """
    memory = _secrets(request, SHARES)
    if request.call.client not in among or not set(among) <= set(memory["clients"]):
        raise Refused("it was asked to mask its answer among clients whose keys it does not have")
    if len(set(among)) < needed(len(memory["clients"])):
        raise Refused(f"it was asked to mask its answer among only {len(set(among))} clients")
    _check_number(request, among)


def hidden(
    request: Request, among: Sequence[str], content: Payload, means: Mapping[str, Any]
) -> Payload:
    """Masks an answer, so that only its sum with the answers of other clients can be known.

    Args:
        request: The request, of which `ready` has approved.
        among: The clients whose answers are masked together.
        content: The answer.
        means: The entries that are averaged, and the entry that weights each, or None.

    Returns:
        The masked answer.

    Raises:
        Refused: If the client has not shared its secrets, or has masked an answer with them.
        Failure: If the answer cannot be added up.
    """
    memory, client = _secrets(request, SHARES), request.call.client
    keys = dict(zip(memory["clients"], memory["keys"], strict=True))
    numbers, layout = laid_out(content, means, len(among))
    masks.add_mask(numbers, as_bytes(memory["seed"]), 1)
    private = as_bytes(memory["private"][1])
    for other in among:
        if other != client:
            seed = masks.agreed_seed(private, as_bytes(keys[other][1]))
            masks.add_mask(numbers, seed, sign(client, other))
    left = {key: memory[key] for key in ("private", "clients", "keys")}  # no seed for a second mask
    request.site.keep(request.state, left | {"step": HIDDEN_AMONG, "among": list(among)})
    return {"masked": torch.from_numpy(numbers.view(np.int64)), "layout": layout}


def sign(client: str, other: str) -> int:
    """1 if `client` adds the mask that it shares with `other`, -1 if it subtracts it."""
    return 1 if client < other else -1


def laid_out(
    content: Payload, means: Mapping[str, str | None], clients: int
) -> tuple[masks.Numbers, list[Any]]:
    """Turns an answer into one sequence of integers: weighted parameters, then the weights.

    Args:
        content: The answer.
        means: The entries that are averaged, and the entry that weights each, or None.
        clients: The number of clients whose answers are added up.

    Returns:
        The integers, and the key, name, shape and type of each tensor, in order.

    Raises:
        Failure: If the answer cannot be added up.
    """
    weights = {name: _weight(name, content) for name in means.values() if name is not None}
    if content.keys() != means.keys() | weights.keys():
        odd = min(content.keys() ^ (means.keys() | weights.keys()))
        raise Failure(
            "its answer does not match the means that the algorithm declares in `averages`, which "
            f"[secure] needs: {odd!r} is in only one of them"
        )
    pieces, layout = [], []
    for key, weight in means.items():
        value = content[key]
        if not isinstance(value, Params):
            raise Failure(f"{key!r} in its answer is not `Params`, and [secure] adds nothing else")
        for name, tensor in value.items():
            layout.append([key, name, list(tensor.shape), str(tensor.dtype)])
            factor = 1 if weight is None else weights[weight]
            pieces.append(tensor.detach().to(torch.float64).flatten() * factor)
    numbers = masks.fixed_point(torch.cat(pieces) if pieces else torch.zeros(0), clients)
    return np.concatenate([numbers, np.array(list(weights.values()), np.uint64)]), layout


def _weight(name: str, content: Payload) -> int:
    weight = content.get(name)
    if type(weight) is not int or not 0 <= weight < 1 << 32:
        raise Failure(
            f"its weight {name!r} is {weight!r}: [secure] needs a whole number below 2^32"
        )
    return weight


def open_shares(
    needed: Needed,
    request: Request,
    answered: Sequence[str],
    lost: Sequence[str],
    shares: Tensor,
) -> Payload:
    """Deletes the client's keys, and decrypts the shares that remove masks from the sum.

    For each client either the share of its seed or that of its key is revealed, never both:
    together they would reveal its answer.

    Args:
        needed: Computes how many clients must stay.
        request: The request.
        answered: The clients that answered, whose shares of seeds are revealed.
        lost: The clients that did not answer, whose shares of keys are revealed.
        shares: The encrypted shares, of `answered` and then of `lost`.

    Returns:
        The shares of seeds and of keys.

    Raises:
        Refused: If the client has not masked an answer, or has opened shares after it; if
            `answered` and `lost` are not the clients among which it masked its answer, too few
            answered, or its own answer is missing.
    """
    memory, client = _secrets(request, HIDDEN_AMONG), request.call.client
    keys = dict(zip(memory["clients"], memory["keys"], strict=True))
    owners = [*answered, *lost]
    if sorted(owners) != sorted(memory["among"]):
        raise Refused("it opens shares of the clients among which it masked its answer, each once")
    if client not in answered or len(answered) < needed(len(keys)):
        raise Refused(f"it opens no shares for a sum over {len(answered)} clients")
    request.site.keep(request.state, {})
    lock = as_bytes(memory["private"][0])
    opened = [
        masks.unlocked(lock, as_bytes(keys[owner][0]), as_bytes(share), f"{owner} to {client}")
        for owner, share in zip(owners, shares, strict=True)
    ]
    found = {"seeds": as_rows([share[: masks.SEED] for share in opened[: len(answered)]])}
    if lost:
        found["keys"] = as_rows([share[masks.SEED :] for share in opened[len(answered) :]])
    return found


def _secrets(request: Request, step: str) -> State:
    """The client's secrets, if the last step that it took with them is the one that it must be."""
    memory = request.site.secrets(request.state)
    if not memory:
        raise Refused("it has no keys for secure aggregation: none were created, or all were used")
    if memory["step"] != step:
        raise Refused("each step of secure aggregation is taken once with the same keys, in order")
    return memory


STEPS: dict[str, Callable[..., Payload]] = {KEYS: keys, SHARES: shares, OPEN: open_shares}
"""The functions that answer the calls of the protocol, by method."""
