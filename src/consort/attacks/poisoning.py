"""Malicious clients, for testing defences with any algorithm: the table `attack` of a recipe."""

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
"""The metric: the share of triggered test examples that get the attacker's label."""
Kind = Literal["label_flip", "backdoor", "sign_flip", "scaled", "nan"]
"""The kinds of attacks: see `Attack.by`."""


@dataclass(frozen=True)
class Attack(Protection):
    """Attacks by some of the clients."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}
    table: ClassVar[str] = "attack"

    by: list[Kind] = field(default_factory=list)
    """The attacks, combined: `label_flip` trains with class c as the last but c, `backdoor` with
    triggered examples as class `target`; `sign_flip` sends the opposite update, `scaled` one that
    is too large, `nan` one that is not a number. Nobody attacks if it is empty."""
    clients: PositiveInt = 1
    """The number of attackers, which are drawn with the seed."""
    strength: PositiveFloat = 10.0
    """The factor of `scaled`."""
    target: NonNegativeInt = 0
    """The class that `backdoor` teaches for triggered examples."""
    patch: PositiveInt = 3
    """The side of the trigger, a square in the lower right corner, in pixels; of vectors, the last
    so many entries."""

    def attackers(self, ids: Sequence[str], seed: int) -> frozenset[str]:
        """Draws the attackers.

        Args:
            ids: The names of all clients.
            seed: The seed of the run.

        Returns:
            The names of the attackers.

        Raises:
            UsageError: If there are fewer clients than attackers.
        """
        if not self.by:
            return frozenset()
        if self.clients > len(ids):
            raise UsageError(
                f"attack.clients = {self.clients}, but there are {len(ids)} clients: lower "
                "attack.clients"
            )
        drawn = torch.randperm(len(ids), generator=generator_for(seed, "attackers"))
        return frozenset(ids[place] for place in drawn[: self.clients].tolist())

    @property
    def needs_single_answers(self) -> bool:
        """Whether it changes answers, and not only the training data of attackers."""
        return bool(set(self.by) - {"label_flip"})

    def check(self, federation: Federation, algorithm: Algorithm[Any], present: int) -> None:  # noqa: ARG002
        """Refuses more attackers than there are clients.

        Raises:
            UsageError: If there are fewer clients than attackers.
        """
        self.attackers(federation.client_ids, federation.seed)

    def prepared(self, federation: F) -> F:
        """Poisons the training data of attackers, if the attack asks for it.

        With a backdoor, all clients are also tested on triggered examples.

        Args:
            federation: The clients.

        Returns:
            The federation with the changed data.

        Raises:
            UsageError: If a client has no suitable classes.
        """
        kinds = [kind for kind in ("label_flip", "backdoor") if kind in self.by]
        if not kinds:
            return federation
        attackers = self.attackers(federation.client_ids, federation.seed)
        members = dict(federation.members)
        for name, member in federation.members.items():
            if name in attackers or "backdoor" in kinds:
                _check(name, member, kinds[-1], self.target)
                load = partial(self._poisoned, member, name in attackers)
                members[name] = replace(member, load=load)
        return replace(federation, members=members)

    def client(self, handler: Handler, setting: Setting) -> Handler:
        """Attackers send changed updates; evaluation is not affected."""
        federation = setting.federation
        attackers = self.attackers(federation.client_ids, federation.seed)

        def harmful(request: Request) -> Payload:
            content, call = handler(request), request.call
            if call.evaluation or call.client not in attackers:
                return content
            return reworked(content, call.payload, self.on_update)

        return harmful

    def _poisoned(self, member: Member, attacks: bool) -> Splits:
        """The data of a client, with poisoned training data if it attacks."""
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
        """Adds the trigger, a square of the largest value, and the attacker's label.

        Args:
            examples: The examples, which are not changed.

        Returns:
            The triggered examples.
        """
        inputs = examples.tensor.clone()
        corner = (..., slice(-self.patch, None), slice(-self.patch, None))
        if len(inputs):
            inputs[corner if inputs.ndim > 2 else corner[:2]] = inputs.max()
        wanted = {name: torch.full_like(t, self.target) for name, t in examples.targets.items()}
        return Examples(inputs, wanted)

    def on_update(self, update: Params) -> Params:
        """The update that an attacker sends in the place of its `update`."""
        if "nan" in self.by:
            return update * math.nan
        factor = (self.strength if "scaled" in self.by else 1.0) * (
            -1.0 if "sign_flip" in self.by else 1.0
        )
        return update if factor == 1.0 else update * factor


def _check(name: str, member: Member, kind: str, target: int) -> None:
    tasks = [task for task in member.tasks.values() if isinstance(task, Classification)]
    if not tasks or (kind == "backdoor" and len(tasks) < len(member.tasks)):
        raise UsageError(
            f"attack.by = {kind!r} needs tasks with classes, but client {name} has others: remove "
            "this attack"
        )
    if kind == "backdoor" and target >= min(task.classes for task in tasks):
        raise UsageError(f"attack.target = {target} is not a class of client {name}: lower it")


def _flipped(examples: Examples, tasks: Mapping[str, Task]) -> Examples:
    targets = dict(examples.targets)
    for name, task in tasks.items():
        if isinstance(task, Classification):
            targets[name] = task.classes - 1 - targets[name]
    return Examples(examples.inputs, targets)
