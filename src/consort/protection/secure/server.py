"""The server's half of secure aggregation: collects masked answers, removes masks from their sum.

Bonawitz et al.: Practical Secure Aggregation for Privacy-Preserving Machine Learning, CCS 2017.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from consort.core.algorithm import Algorithm
from consort.core.engine import Engine
from consort.core.messages import Call, Payload, Reply
from consort.core.params import Params
from consort.engines.middleware import RefusedReply, Wrapper
from consort.errors import ClientFailed, Failure, NoReplies, UsageError
from consort.protection.secure import masks
from consort.protection.secure.client import HIDDEN_AMONG, KEYS, OPEN, SHARES, Needed, sign
from consort.protection.secure.masks import as_bytes
from consort.protection.secure.sealed import Sealed

_PROOF = 4096  # bytes of a proof, at most
_NO_PROOF = torch.zeros(1, 0, dtype=torch.uint8)
_TYPES = {str(t): t for t in (torch.float16, torch.bfloat16, torch.float32, torch.float64)}


@dataclass
class Secured(Wrapper):
    """Collects masked answers and replaces them by their means."""

    enough: Needed
    """Computes how many clients must stay until the end of a round, from their number."""
    algorithm: Algorithm[Any]
    """The algorithm that is run."""
    tell: Callable[[ClientFailed], Any]
    """Reports a client whose answer is refused."""

    def deliver(self, calls: Sequence[Call]) -> Iterator[Reply]:
        """Delivers `calls`; each reply holds the means of all answers, except in evaluations."""
        if calls and not calls[0].evaluation:
            return iter(self._together(calls))
        return self.engine.deliver(calls)

    def _together(self, calls: Sequence[Call]) -> list[Reply]:
        means = self.algorithm.needed_means()
        exchange = Exchange(self.engine, self.enough, self.tell, {c.client: c for c in calls})
        exchange.agree()
        answers = exchange.answers(len({weight for weight in means.values() if weight}))
        total = exchange.unmasked(answers)
        layout = next(iter(answers.values())).content["layout"]
        name = type(self.algorithm).__name__
        found = means_of(total, layout, means, len(answers))
        sealed: Any = Sealed(name, tuple(sorted(answers)), means, found)
        return [
            replace(answers[c], content=sealed) if c in answers else exchange.failed[c]
            for c in exchange.calls
        ]


@dataclass
class Exchange:
    """One call to several clients, with the calls that the protocol adds."""

    engine: Engine
    """The engine that reaches the clients."""
    threshold: Needed
    """Computes how many clients must stay, from their number."""
    tell: Callable[[ClientFailed], Any]
    """Reports a client whose answer is refused."""
    calls: Mapping[str, Call]
    """The algorithm's call to each client."""
    failed: dict[str, Reply] = field(default_factory=dict)
    """The error replies so far, by client."""
    needed: int = 2
    """How many clients must stay until the end of the round."""
    keys: dict[str, Tensor] = field(default_factory=dict)
    """The public keys of every client that takes part."""
    shares: dict[str, Tensor] = field(default_factory=dict)
    """By client: encrypted shares of its secrets, one for every client."""

    def agree(self) -> None:
        """Distributes the public keys of all clients and collects shares of their secrets.

        Raises:
            NoReplies: If too few clients are left.
        """
        found = self.ask(0, self.calls, KEYS, lambda _: {}, _are_keys)
        self.keys = {client: reply.content["keys"] for client, reply in found.items()}
        self.needed = self.threshold(len(self.keys))
        told = {"clients": list(self.keys), "keys": torch.stack(list(self.keys.values()))}
        if any("proof" in reply.content for reply in found.values()):
            told["proofs"] = [reply.content.get("proof", _NO_PROOF) for reply in found.values()]
        fits = _has(shares=(len(self.keys), masks.LOCKED))
        found = self.ask(1, self.keys, SHARES, lambda _: told, fits)
        self.shares = {client: reply.content["shares"] for client, reply in found.items()}

    def answers(self, weights: int) -> dict[str, Reply]:
        """Collects the masked answers; one with other parameters than most is refused.

        Args:
            weights: The number of different weights in an answer.

        Returns:
            The replies, by client.

        Raises:
            NoReplies: If too few clients are left.
        """
        among = list(self.shares)

        def fits(content: Payload) -> bool:
            size = sum(math.prod(shape) for _, _, shape, _ in content["layout"]) + weights
            known = all(kind in _TYPES for *_, kind in content["layout"])
            return known and _is(content["masked"], torch.int64, (size,))

        found = self.ask(
            2, among, None, lambda c: self.calls[c].payload | {HIDDEN_AMONG: among}, fits
        )
        layouts = {client: str(reply.content["layout"]) for client, reply in found.items()}
        common, _ = Counter(layouts.values()).most_common(1)[0]
        for client, layout in layouts.items():
            if layout != common:
                del found[client]
                self.refuse(client, "its answer has other parameters than most answers")
        return self.enough(found)

    def unmasked(self, answers: Mapping[str, Reply]) -> masks.Numbers:
        """Adds up the answers and removes the masks, with shares that clients reveal.

        Args:
            answers: The masked answers.

        Returns:
            The sum.

        Raises:
            NoReplies: If too few clients reveal shares.
            Failure: If shares are inconsistent.
        """
        lost = [client for client in self.shares if client not in answers]
        places = {client: place for place, client in enumerate(self.keys)}
        owners = [*answers, *lost]

        def asked(client: str) -> Payload:
            locked = torch.stack([self.shares[owner][places[client]] for owner in owners])
            return {"answered": list(answers), "lost": lost, "shares": locked}

        fits = _has(seeds=(len(answers), masks.SEED), **({"keys": (len(lost), 32)} if lost else {}))
        opened = list(self.ask(3, answers, OPEN, asked, fits).items())[: self.needed]

        def secret(kind: str, number: int) -> bytes:
            shares = {places[c]: as_bytes(reply.content[kind][number]) for c, reply in opened}
            return masks.secret_of(shares)

        total = sum_of([reply.content["masked"] for reply in answers.values()])
        for number in range(len(answers)):
            masks.add_mask(total, secret("seeds", number), -1)
        for number, client in enumerate(lost):
            private = secret("keys", number)
            if masks.public_of(private) != as_bytes(self.keys[client][1]):
                raise Failure(f"the shares of the key of client {client} are inconsistent")
            for other in answers:
                seed = masks.agreed_seed(private, as_bytes(self.keys[other][1]))
                masks.add_mask(total, seed, -sign(other, client))
        return total

    def ask(
        self,
        step: int,
        clients: Iterable[str],
        method: str | None,
        payload: Callable[[str], Payload],
        fits: Callable[[Payload], bool],
    ) -> dict[str, Reply]:
        """Makes the calls of one of the four steps of the protocol.

        Args:
            step: The number of the step.
            clients: The clients to call.
            method: The method of the protocol, or None for the algorithm's own.
            payload: Returns the payload for a client.
            fits: Checks an answer.

        Returns:
            The valid replies, by client.

        Raises:
            NoReplies: If there are too few of them.
        """
        calls = [
            replace(
                call,
                method=method or call.method,
                step=4 * call.step + step,
                payload=payload(call.client),
            )
            for call in map(self.calls.__getitem__, clients)
        ]
        found: dict[str, Reply] = {}
        for reply in self.engine.deliver(calls):
            if reply.error:
                self.failed[reply.client] = reply
            elif not _safely(fits, reply.content):
                self.refuse(reply.client, "its answer is not valid in the protocol of [secure]")
            else:
                found[reply.client] = reply
        return self.enough(found)

    def refuse(self, client: str, reason: str) -> None:
        """Continues without a `client`, and reports the `reason`."""
        error = RefusedReply(client, reason)
        self.failed[client] = Reply(client, error=error)
        self.tell(error)

    def enough(self, found: dict[str, Reply]) -> dict[str, Reply]:
        """Checks that enough clients are left.

        Args:
            found: The valid replies.

        Returns:
            The same replies.

        Raises:
            NoReplies: If there are too few of them.
        """
        if len(found) < self.needed:
            raise NoReplies(
                f"[secure] needs {self.needed} of {len(self.keys) or len(self.calls)} clients "
                f"until the end of a round, but {len(found)} are left"
            )
        return found


def sum_of(items: Sequence[Tensor]) -> masks.Numbers:
    """The sum of the tensors in `items` modulo 2^64."""
    total = items[0].numpy().copy().view(np.uint64)
    for item in items[1:]:
        total += item.numpy().view(np.uint64)
    return total


def means_of(
    total: masks.Numbers,
    layout: Sequence[Any],
    means: Mapping[str, str | None],
    clients: int,
) -> dict[str, Params]:
    """Computes the means from the sum of all answers: see `consort.protection.secure.client`.

    Args:
        total: The sum of what `laid_out` returned for each client.
        layout: The key, name, shape and type of each tensor in it.
        means: The entries that are averaged, and the entry that weights each, or None.
        clients: The number of clients that answered.

    Returns:
        The means, by key.

    Raises:
        UsageError: If the weights of a mean have the sum 0.
    """
    weights = dict.fromkeys(name for name in means.values() if name is not None)
    ends = total[len(total) - len(weights) :]
    sums: dict[str | None, int] = {None: clients} | dict(zip(weights, map(int, ends), strict=True))
    values = masks.floating_point(total[: len(total) - len(weights)])
    pieces = torch.split(values, [math.prod(shape) for _, _, shape, _ in layout])
    tensors: dict[str, dict[str, Tensor]] = {key: {} for key in means}
    for (key, name, shape, kind), piece in zip(layout, pieces, strict=True):
        divisor = sums[means[key]]
        if divisor == 0:
            raise UsageError("the weights of a mean must have a positive sum, found 0")
        tensors[key][name] = (piece / divisor).to(_TYPES[kind]).view(shape)
    return {key: Params(found) for key, found in tensors.items()}


def _has(**shapes: tuple[int, ...]) -> Callable[[Payload], bool]:
    """A check that a content has exactly these tensors of bytes."""
    return lambda content: (
        content.keys() == shapes.keys()
        and all(_is(content[key], torch.uint8, shape) for key, shape in shapes.items())
    )


def _are_keys(content: Payload) -> bool:
    """Whether a content has two public keys, and perhaps a proof, which only clients can check."""
    proof = content.get("proof", _NO_PROOF)
    if not isinstance(proof, Tensor) or proof.dtype != torch.uint8 or proof.numel() > _PROOF:
        return False
    return _has(keys=(2, 32))({k: v for k, v in content.items() if k != "proof"})


def _is(value: object, kind: torch.dtype, shape: tuple[int, ...]) -> bool:
    return isinstance(value, Tensor) and value.dtype == kind and tuple(value.shape) == shape


def _safely(fits: Callable[[Payload], bool], content: Payload) -> bool:
    """Whether a content passes a check; an error in the check means that it does not."""
    try:
        return fits(content)
    except (LookupError, TypeError, ValueError):
        return False
