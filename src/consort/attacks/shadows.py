"""Which examples a client was trained on, by the losses of its model and of models like it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch

from consort.attacks.membership import (
    FEWEST,
    Membership,
    Scores,
    likelihood_ratio,
    losses,
    tell_members,
    within_class,
)
from consort.attacks.victim import Victim, labels_of, some
from consort.core.randomness import derive, generator_for
from consort.data.examples import Examples
from consort.errors import ConsortError
from consort.models.multitask import MultiTaskModel
from consort.training.client import Client
from consort.training.local import LocalTraining

REFERENCE_EPOCHS = 10
SHADOWS = 8


def membership(
    victim: Victim, model: MultiTaskModel, local: LocalTraining
) -> dict[str, Membership | str] | str:
    """How well training examples are told from test examples by the losses of a model."""
    train, test = (some(part) for part in (victim.data.train, victim.data.test))
    members, others = losses(model, victim.tasks, train), losses(model, victim.tasks, test)
    judged = [np.isfinite(members), np.isfinite(others)]
    if min(kept.sum() for kept in judged) < FEWEST:
        return f"There are fewer than {FEWEST} examples to train on or to test on: not tried."

    def told(one: Scores, other: Scores) -> Membership:
        return tell_members(one[judged[0]], other[judged[1]])

    found: dict[str, Membership | str] = {"loss": told(-members, -others)}
    labels = [part for part in map(labels_of, (train, test)) if part is not None]
    if len(labels) == 2:
        everything = np.concatenate([-members, -others])
        known = np.concatenate([np.arange(len(part)) % 2 == 0 for part in labels])
        known &= np.concatenate(judged)
        relative = within_class(everything, np.concatenate(labels), known)
        found["loss within its class"] = told(*np.split(relative, [len(members)]))
    peer = reference(victim, local)
    if isinstance(peer, str):
        found["loss minus that of a reference"] = peer
    else:
        easier = [losses(peer, victim.tasks, part) for part in (train, test)]
        found["loss minus that of a reference"] = told(easier[0] - members, easier[1] - others)
    found[f"likelihood ratio, {SHADOWS} shadow models"] = _ratio(
        victim, local, (train, test), (members, others), told
    )
    return found


def _ratio(
    victim: Victim,
    local: LocalTraining,
    parts: Sequence[Examples],
    seen: Sequence[Scores],
    told: Callable[[Scores, Scores], Membership],
) -> Membership | str:
    peers = shadows(victim, local)
    if isinstance(peers, str):
        return peers
    one, other = (
        likelihood_ratio(own, [losses(peer, victim.tasks, part) for peer in peers])
        for own, part in zip(seen, parts, strict=True)
    )
    return told(one, other)


def reference(victim: Victim, local: LocalTraining) -> MultiTaskModel | str:
    """A model of the same kind that saw only validation data: how hard examples are."""
    similar = victim.data.validation
    if not len(similar):
        return "There are no validation examples to train a reference on."
    return _trained(victim, local, similar, "reference")


def shadows(victim: Victim, local: LocalTraining) -> list[MultiTaskModel] | str:
    """Models of the same kind, each of a random half of the validation data."""
    similar = victim.data.validation
    if len(similar) < 2 * FEWEST:
        return f"There are fewer than {2 * FEWEST} validation examples for shadow models."
    found = []
    for number in range(SHADOWS):
        generator = generator_for(victim.seed, victim.client, "shadow", number)
        half = torch.randperm(len(similar), generator=generator)[: len(similar) // 2]
        model = _trained(victim, local, similar.take(half), f"shadow {number}")
        if isinstance(model, str):
            return model
        found.append(model)
    return found


def _trained(
    victim: Victim, local: LocalTraining, similar: Examples, name: str
) -> MultiTaskModel | str:
    model = copy.deepcopy(victim.fresh())
    model.companion = None
    client = Client(
        victim.client,
        model,
        dict(victim.tasks),
        replace(victim.data, train=similar),
        {},
        generator_for(victim.seed, victim.client, name),
        1,
        1,
    )
    torch.default_generator.manual_seed(derive(victim.seed, victim.client, name))
    try:
        replace(local, epochs=REFERENCE_EPOCHS, steps=None, warmup=0).run(client)
    except ConsortError as error:
        return f"A reference could not be trained: {error}."
    return model
