"""Clients that do harm on purpose, so that defences can be tried: in any algorithm."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Literal

import torch

from consort.core.algorithm import Algorithm
from consort.core.bounds import NonNegativeInt, PositiveFloat, PositiveInt
from consort.core.messages import Payload
from consort.core.params import Params
from consort.core.randomness import generator_for
from consort.data.examples import Examples, Splits
from consort.errors import UsageError
from consort.federation.federation import Federation
from consort.federation.member import Member
from consort.federation.protection import F, Handler, Protection, Request, Setting
from consort.protection.updates import reworked
from consort.tasks import Classification, Task

ATTACK_SUCCESS = "attack_success"
"""The share of marked test examples for which a model says what an attacker wants."""
Kind = Literal["label_flip", "backdoor", "sign_flip", "scaled", "nan"]


@dataclass(frozen=True)
class Attack(Protection):
    """What some of the clients do wrong."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}
    table: ClassVar[str] = "attack"

    by: list[Kind] = field(default_factory=list)
    """`label_flip` teaches class c as the last but c, `backdoor` a mark as the class `target`;
    `sign_flip` sends the opposite update, `scaled` an update that is too long, `nan` no numbers;
    several together; none if empty."""
    clients: PositiveInt = 1
    """How many clients attack; which, the seed decides."""
    strength: PositiveFloat = 10.0
    """Factor of `scaled`."""
    target: NonNegativeInt = 0
    """The class that `backdoor` wants for marked examples."""
    patch: PositiveInt = 3
    """Pixels of a side of the mark in the lower right corner; of vectors, the last numbers."""

    def attackers(self, ids: Sequence[str], seed: int) -> frozenset[str]:
        """Who attacks."""
        if not self.by:
            return frozenset()
        if self.clients > len(ids):
            raise UsageError(f"attack.clients = {self.clients}, but there are {len(ids)} clients")
        drawn = torch.randperm(len(ids), generator=generator_for(seed, "attackers"))
        return frozenset(ids[place] for place in drawn[: self.clients].tolist())

    @property
    def needs_single_answers(self) -> bool:
        """Whether it changes answers, and not only what attackers learn."""
        return bool(set(self.by) - {"label_flip"})

    def check(self, federation: Federation, algorithm: Algorithm[Any], present: int) -> None:  # noqa: ARG002
        """Refuses more attackers than there are clients."""
        self.attackers(federation.client_ids, federation.seed)

    def prepared(self, federation: F) -> F:
        """The federation in which attackers learn what is wrong, if that is the attack.

        With a back door, everybody is tested on marked examples too.
        """
        lies = [kind for kind in ("label_flip", "backdoor") if kind in self.by]
        if not lies:
            return federation
        attackers = self.attackers(federation.client_ids, federation.seed)
        members = dict(federation.members)
        for name, member in federation.members.items():
            if name in attackers or "backdoor" in lies:
                _check(name, member, lies[-1], self.target)
                members[name] = replace(member, load=partial(self._lied, member, name in attackers))
        return replace(federation, members=members)

    def client(self, handler: Handler, setting: Setting) -> Handler:
        """Attackers send something else than the algorithm says; evaluation is left as it is."""
        federation = setting.federation
        attackers = self.attackers(federation.client_ids, federation.seed)

        def harmful(request: Request) -> Payload:
            content, call = handler(request), request.call
            if call.evaluation or call.client not in attackers:
                return content
            return reworked(content, call.payload, self.on_update)

        return harmful

    def _lied(self, member: Member, attacks: bool) -> Splits:
        splits = member.load()
        train, extra = splits.train, dict(splits.extra)
        if attacks and "label_flip" in self.by:
            train = _flipped(train, member.tasks)
        if "backdoor" in self.by:
            others = torch.stack([t != self.target for t in splits.test.targets.values()]).all(0)
            extra[ATTACK_SUCCESS] = self.marked(splits.test.take(others.nonzero()[:, 0]))
        if attacks and "backdoor" in self.by:
            half = torch.arange(0, len(train), 2)
            clean = torch.arange(1, len(train), 2)
            train = Examples.concatenate([self.marked(train.take(half)), train.take(clean)])
        return replace(splits, train=train, extra=extra)

    def marked(self, examples: Examples) -> Examples:
        """Examples with the brightest value in a corner, and the label that the attacker wants."""
        inputs = examples.inputs.clone()
        corner = (..., slice(-self.patch, None), slice(-self.patch, None))
        if len(inputs):
            inputs[corner if inputs.ndim > 2 else corner[:2]] = inputs.max()
        wanted = {name: torch.full_like(t, self.target) for name, t in examples.targets.items()}
        return Examples(inputs, wanted)

    def on_update(self, update: Params) -> Params:
        """What an attacker sends in the place of its update."""
        if "nan" in self.by:
            return update * math.nan
        factor = (self.strength if "scaled" in self.by else 1.0) * (
            -1.0 if "sign_flip" in self.by else 1.0
        )
        return update if factor == 1.0 else update * factor


def _check(name: str, member: Member, kind: str, target: int) -> None:
    tasks = [task for task in member.tasks.values() if isinstance(task, Classification)]
    if not tasks or (kind == "backdoor" and len(tasks) < len(member.tasks)):
        raise UsageError(f"attack.by = {kind!r} needs classes, and client {name} learns none")
    if kind == "backdoor" and target >= min(task.classes for task in tasks):
        raise UsageError(f"attack.target = {target}: client {name} has no such class")


def _flipped(examples: Examples, tasks: Mapping[str, Task]) -> Examples:
    targets = dict(examples.targets)
    for name, task in tasks.items():
        if isinstance(task, Classification):
            targets[name] = task.classes - 1 - targets[name]
    return Examples(examples.inputs, targets)
