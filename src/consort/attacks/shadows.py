"""Membership attacks by the losses of a client's model, of a reference and of shadow models."""

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
    evaluate_attack,
    likelihood_ratio,
    losses,
    within_class,
)
from consort.attacks.victim import Victim, labels_of, subsample
from consort.core.randomness import derive, generator_for
from consort.data.examples import Examples
from consort.errors import ConsortError
from consort.models.multitask import MultiTaskModel
from consort.training.client import Client
from consort.training.local import LocalTraining

REFERENCE_EPOCHS = 10
SHADOWS = 8


def infer_membership(
    victim: Victim, model: MultiTaskModel, local: LocalTraining
) -> dict[str, Membership | str] | str:
    """Tries to separate a client's training examples from its test examples.

    Args:
        victim: The client.
        model: The attacked model.
        local: How the reference and the shadow models are trained.

    Returns:
        The result of every attack by name; text says why one, or all, could not be tried.
    """
    train, test = (subsample(part) for part in (victim.data.train, victim.data.test))
    members, others = losses(model, victim.tasks, train), losses(model, victim.tasks, test)
    judged = [np.isfinite(members), np.isfinite(others)]
    if min(kept.sum() for kept in judged) < FEWEST:
        return f"Not tried: there are fewer than {FEWEST} training or test examples."

    def told(one: Scores, other: Scores) -> Membership:
        return evaluate_attack(one[judged[0]], other[judged[1]])

    found: dict[str, Membership | str] = {"loss": told(-members, -others)}
    labels = [part for part in map(labels_of, (train, test)) if part is not None]
    if len(labels) == 2:
        everything = np.concatenate([-members, -others])
        known = np.concatenate([np.arange(len(part)) % 2 == 0 for part in labels])
        known &= np.concatenate(judged)
        relative = within_class(everything, np.concatenate(labels), known)
        found["loss within its class"] = told(*np.split(relative, [len(members)]))
    peer = reference_model(victim, local)
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
    peers = shadow_models(victim, local)
    if isinstance(peers, str):
        return peers
    one, other = (
        likelihood_ratio(own, [losses(peer, victim.tasks, part) for peer in peers])
        for own, part in zip(seen, parts, strict=True)
    )
    return told(one, other)


def reference_model(victim: Victim, local: LocalTraining) -> MultiTaskModel | str:
    """A model of the same architecture trained on validation data; text if it cannot be trained."""
    similar = victim.data.validation
    if not len(similar):
        return "No reference model: there are no validation examples to train it on."
    return _trained(victim, local, similar, "reference")


def shadow_models(victim: Victim, local: LocalTraining) -> list[MultiTaskModel] | str:
    """Models of the same architecture, each trained on a random half of the validation data."""
    similar = victim.data.validation
    if len(similar) < 2 * FEWEST:
        return f"No shadow models: there are fewer than {2 * FEWEST} validation examples."
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
    model = copy.deepcopy(victim.initial_model())
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
        return f"A reference model could not be trained: {error}."
    return model
