"""Clients that do harm on purpose, so that defences can be tried: in any algorithm."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import torch

from consort.data.examples import Examples, Splits
from consort.defences.updates import reworked
from consort.engines.wrappers import Wrapper
from consort.errors import UsageError
from consort.federation import Federation, Member
from consort.messages import Call, Reply
from consort.params import Params
from consort.randomness import generator_for
from consort.tasks import Classification, Task
from consort.types import Count, Positive

Kind = Literal["label_flip", "sign_flip", "scaled", "nan"]


@dataclass(frozen=True)
class Attack:
    """What some of the clients do wrong."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    by: list[Kind] = field(default_factory=list)
    """`label_flip` teaches class c as the last but c; `sign_flip` sends the opposite update,
    `scaled` an update that is too long, `nan` no numbers; several together; none if empty."""
    clients: Count = 1
    """How many clients attack; which, the seed decides."""
    strength: Positive = 10.0
    """Factor of `scaled`."""

    def attackers(self, ids: Sequence[str], seed: int) -> frozenset[str]:
        """Who attacks."""
        if not self.by:
            return frozenset()
        if self.clients > len(ids):
            raise UsageError(f"attack.clients = {self.clients}, but there are {len(ids)} clients")
        drawn = torch.randperm(len(ids), generator=generator_for(seed, "attackers"))
        return frozenset(ids[place] for place in drawn[: self.clients].tolist())

    def on_data(self, federation: Federation, seed: int) -> Federation:
        """The federation in which the attackers learn from wrong labels, if that is the attack."""
        if "label_flip" not in self.by:
            return federation
        members = dict(federation.members)
        for name in self.attackers(federation.client_ids, seed):
            members[name] = _mislabelled(name, members[name])
        return federation.having(members)

    def on_update(self, update: Params) -> Params:
        """What an attacker sends in the place of its update."""
        if "nan" in self.by:
            return update * math.nan
        factor = (self.strength if "scaled" in self.by else 1.0) * (
            -1.0 if "sign_flip" in self.by else 1.0
        )
        return update if factor == 1.0 else update * factor


@dataclass
class Attacked(Wrapper):
    """Some of the clients send something else than the algorithm says."""

    attack: Attack
    attackers: frozenset[str]

    def deliver(self, calls: Sequence[Call]) -> Iterator[Reply]:
        """Evaluation is left as it is."""
        for call, reply in zip(calls, self.engine.deliver(calls), strict=True):
            harmless = call.evaluation or reply.error or call.client not in self.attackers
            yield reply if harmless else self._harmful(call, reply)

    def _harmful(self, call: Call, reply: Reply) -> Reply:
        content = reworked(reply.content, call.payload, self.attack.on_update)
        return reply if content is reply.content else replace(reply, content=content)


def _mislabelled(name: str, member: Member) -> Member:
    if not any(isinstance(task, Classification) for task in member.tasks.values()):
        raise UsageError(f"attack.by = 'label_flip' needs classes, and client {name} learns none")

    def load() -> Splits:
        splits = member.load()
        return replace(splits, train=_flipped(splits.train, member.tasks))

    return replace(member, load=load)


def _flipped(examples: Examples, tasks: Mapping[str, Task]) -> Examples:
    targets = dict(examples.targets)
    for name, task in tasks.items():
        if isinstance(task, Classification):
            targets[name] = task.classes - 1 - targets[name]
    return Examples(examples.inputs, targets)
