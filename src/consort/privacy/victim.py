"""One client under attack: what is taken from its messages and its model, or why nothing is."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from consort.client import Client
from consort.data.examples import Examples, Splits
from consort.errors import ConsortError
from consort.local import LocalTraining
from consort.models.multitask import MultiTaskModel
from consort.params import slots
from consort.privacy.attacks.imprint import Imprint, imprinted, laplace_cutoffs
from consort.privacy.attacks.information import entropy, mutual_information
from consort.privacy.attacks.inversion import Gradient, Inverted, invert
from consort.privacy.attacks.membership import (
    FEWEST,
    Membership,
    Scores,
    likelihood_ratio,
    losses,
    tell_members,
    within_class,
)
from consort.privacy.attacks.recovery import Recovery, as_pictures, beside, bounds_of, recovery
from consort.privacy.attacks.rescale import rescaled
from consort.privacy.attacks.similarity import Perceptual
from consort.privacy.obfuscation import FpDfsn
from consort.privacy.traffic import Update
from consort.randomness import derive, generator_for
from consort.tasks import Task

EXAMPLES = 8
"""Examples that inversion looks for at once."""
BATCH = 8
"""Examples of the step in which a malicious server looks."""
BINS = 128
MOST = 400
"""Members and others whose losses are looked at."""
REFERENCE_EPOCHS = 10
SHADOWS = 8


@dataclass(frozen=True)
class Victim:
    """A client as attackers know it, its kind of model and its tasks; its data judge them."""

    client: str
    fresh: Callable[[], MultiTaskModel]
    """Its kind of model with initial weights."""
    tasks: Mapping[str, Task]
    data: Splits
    seed: int
    clean: Examples | None = None
    """Its training examples before they were obfuscated, if they were."""
    perceptual: Perceptual | None = None
    """One more score of recovered pictures, if its weights are at hand."""

    def invert(self, updates: Sequence[Update], steps: int) -> Recovery | str:
        """Looks for examples that explain what was sent."""
        inputs = self.data.train.inputs
        if not inputs.is_floating_point():
            return "Examples are texts, which have no slope to descend along: not tried."
        useful = [update for update in updates if update.direction.only(*_SEEING)]
        if not useful:
            return (
                "Nothing was sent that inputs can be computed from: no update of the part of the "
                "model that sees them left the client. Not tried."
            )
        if not len(self.data.train):
            return "The client has no training examples."
        found = self.inverted(useful[0], steps)
        return self._judged(found.inputs, MOST, found.cosine)

    def inverted(self, update: Update, steps: int) -> Inverted:
        """Some examples whose gradient points where an update does, with labels given away."""
        known = self._mixed(min(EXAMPLES, len(self.data.train)))
        bounds = bounds_of(self.data.train.inputs)
        generator = generator_for(self.seed, self.client, "inversion")
        share = torch.rand(known.inputs.shape, generator=generator)
        start = bounds[0] + (bounds[1] - bounds[0]) * share
        model = copy.deepcopy(self.fresh()).eval()
        update.model.load_into(model)
        gradient = self._gradient(model, list(update.direction), known.targets)
        signs = (1.0,) if update.signed else (1.0, -1.0)
        tried = [
            invert(
                gradient, [part * sign for part in update.direction.values()], start, bounds, steps
            )
            for sign in signs
        ]
        return max(tried, key=lambda found: found.cosine)

    def _mixed(self, count: int) -> Examples:
        """So many training examples, with classes as often as in the whole."""
        train = self.data.train
        labels = self._labels(train)
        order = np.arange(len(train)) if labels is None else np.argsort(labels, kind="stable")
        places = (np.arange(count) + 0.5) * len(train) / count
        return train.take(torch.from_numpy(order[places.astype(np.int64)]))

    def _gradient(
        self, model: MultiTaskModel, names: Sequence[str], targets: Mapping[str, Tensor]
    ) -> Gradient:
        params = [slots(model)[name] for name in names]

        def gradient(inputs: Tensor) -> list[Tensor]:
            loss = self.loss(model, inputs, targets)
            found = torch.autograd.grad(loss, params, create_graph=True, allow_unused=True)
            return [
                torch.zeros_like(param) if grad is None else grad
                for grad, param in zip(found, params, strict=True)
            ]

        return gradient

    def loss(self, model: MultiTaskModel, inputs: Tensor, targets: Mapping[str, Tensor]) -> Tensor:
        """What a model of this kind, and its companion, are trained by."""
        models = [model] if model.companion is None else [model, model.companion]
        outputs = [one(inputs, self.tasks) for one in models]
        found = [t.loss(o[name], targets[name]) for o in outputs for name, t in self.tasks.items()]
        return torch.stack(found).sum()

    def imprint(self) -> Recovery | str:
        """What a server would get that puts a layer of its own in front of the model."""
        batch = self.data.train.rows(0, min(BATCH, len(self.data.train)))
        if not batch.inputs.is_floating_point():
            return "Examples are texts, which cannot be averaged: not tried."
        if not len(batch) or not len(self.data.test):
            return "There are too few examples to try."
        layer = self.imprint_layer()
        grads = self.imprint_gradients(layer, batch)
        found = imprinted(*grads).view(-1, *as_pictures(batch.inputs).shape[1:])
        return self._judged(found, BATCH) if len(found) else "No gradient came through."

    def imprint_layer(self) -> Imprint:
        """What a malicious server puts in front, fitted to test examples."""
        pictures = as_pictures(self.data.test.inputs)
        means = pictures.flatten(1).mean(1)
        middle = means.median().item()
        spread = max((means - middle).abs().mean().item(), 1e-6)
        return Imprint(pictures.shape[1:], laplace_cutoffs(BINS, middle, spread))

    def imprint_gradients(self, layer: Imprint, batch: Examples) -> tuple[Tensor, ...]:
        """Those of the layer, of its weights and of its biases, after a step on a batch."""
        model = copy.deepcopy(self.fresh()).eval()
        seen = layer(as_pictures(batch.inputs)).view_as(batch.inputs)
        loss = self.loss(model, seen, batch.targets)
        return torch.autograd.grad(loss, [layer.sort.weight, layer.sort.bias])

    def _judged(self, found: Tensor, most: int, cosine: float = math.nan) -> Recovery:
        """Beside the first training examples, as they were before anything was done to them."""
        seen, others = self.data.train.inputs[:most], self.data.test
        clean = (self.clean or self.data.train).inputs
        mean = (others if len(others) else self.data.train).inputs.mean(0, keepdim=True)
        return recovery(found, seen, clean[:most], mean, bounds_of(clean), cosine, self.perceptual)

    def membership(
        self, model: MultiTaskModel, local: LocalTraining
    ) -> dict[str, Membership | str] | str:
        """How well training examples are told from test examples by the losses of a model."""
        train, test = (_some(part) for part in (self.data.train, self.data.test))
        members, others = losses(model, self.tasks, train), losses(model, self.tasks, test)
        judged = [np.isfinite(members), np.isfinite(others)]
        if min(kept.sum() for kept in judged) < FEWEST:
            return f"There are fewer than {FEWEST} examples to train on or to test on: not tried."

        def told(one: Scores, other: Scores) -> Membership:
            return tell_members(one[judged[0]], other[judged[1]])

        found: dict[str, Membership | str] = {"loss": told(-members, -others)}
        labels = [part for part in map(self._labels, (train, test)) if part is not None]
        if len(labels) == 2:
            everything = np.concatenate([-members, -others])
            known = np.concatenate([np.arange(len(part)) % 2 == 0 for part in labels])
            known &= np.concatenate(judged)
            relative = within_class(everything, np.concatenate(labels), known)
            found["loss within its class"] = told(*np.split(relative, [len(members)]))
        reference = self.reference(local)
        if isinstance(reference, str):
            found["loss minus that of a reference"] = reference
        else:
            easier = [losses(reference, self.tasks, part) for part in (train, test)]
            found["loss minus that of a reference"] = told(easier[0] - members, easier[1] - others)
        found[f"likelihood ratio, {SHADOWS} shadow models"] = self._ratio(
            local, (train, test), (members, others), told
        )
        return found

    def _ratio(
        self,
        local: LocalTraining,
        parts: Sequence[Examples],
        seen: Sequence[Scores],
        told: Callable[[Scores, Scores], Membership],
    ) -> Membership | str:
        shadows = self.shadows(local)
        if isinstance(shadows, str):
            return shadows
        one, other = (
            likelihood_ratio(own, [losses(shadow, self.tasks, part) for shadow in shadows])
            for own, part in zip(seen, parts, strict=True)
        )
        return told(one, other)

    def _labels(self, examples: Examples) -> NDArray[np.int64] | None:
        for target in examples.targets.values():
            if target.ndim == 1 and not target.is_floating_point():
                return target.numpy()
        return None

    def reference(self, local: LocalTraining) -> MultiTaskModel | str:
        """A model of the same kind that saw only validation data: how hard examples are."""
        similar = self.data.validation
        if not len(similar):
            return "There are no validation examples to train a reference on."
        return self._trained(local, similar, "reference")

    def shadows(self, local: LocalTraining) -> list[MultiTaskModel] | str:
        """Models of the same kind, each of a random half of the validation data."""
        similar = self.data.validation
        if len(similar) < 2 * FEWEST:
            return f"There are fewer than {2 * FEWEST} validation examples for shadow models."
        found = []
        for number in range(SHADOWS):
            generator = generator_for(self.seed, self.client, "shadow", number)
            half = torch.randperm(len(similar), generator=generator)[: len(similar) // 2]
            model = self._trained(local, similar.take(half), f"shadow {number}")
            if isinstance(model, str):
                return model
            found.append(model)
        return found

    def _trained(self, local: LocalTraining, similar: Examples, name: str) -> MultiTaskModel | str:
        model = copy.deepcopy(self.fresh())
        model.companion = None
        client = Client(
            self.client,
            model,
            dict(self.tasks),
            replace(self.data, train=similar),
            {},
            generator_for(self.seed, self.client, name),
            1,
            1,
        )
        torch.default_generator.manual_seed(derive(self.seed, self.client, name))
        try:
            replace(local, epochs=REFERENCE_EPOCHS, steps=None, warmup=0).run(client)
        except ConsortError as error:
            return f"A reference could not be trained: {error}."
        return model

    def information(self, model: MultiTaskModel) -> tuple[float, float] | str:
        """Bits that features tell of pictures, and bits in the features."""
        inputs = _some(self.data.test).inputs
        if inputs.ndim not in (4, 5) or not len(inputs):
            return "Examples are no pictures: not measured."
        with torch.inference_mode():
            features = model.eval().encoder(inputs)
        if not isinstance(features, Tensor):
            return "The encoder gives maps of several sizes, not one vector: not measured."
        vectors = features.flatten(2).mean(2) if features.ndim > 2 else features
        first = inputs[:, 0] if inputs.ndim == 5 else inputs
        pictures, values = first.mean(1).double().numpy(), vectors.double().numpy()
        rng = np.random.default_rng(derive(self.seed, self.client, "information"))
        return mutual_information(pictures, values, rng), entropy(values)

    def rescale(self, way: FpDfsn, clean: Examples) -> Recovery:
        """Divides obfuscation away; the blind guess is the obfuscated picture as it is."""
        seen, originals = (as_pictures(part.inputs[:BATCH]) for part in (self.data.train, clean))
        return beside(rescaled(seen, way.beta), originals, seen, self.perceptual)


_SEEING = ("encoder", "companion.encoder")
"""The parts of a model whose gradients depend on inputs themselves, not only on features."""


def _some(examples: Examples) -> Examples:
    """Evenly many over all examples, if there are more than are looked at."""
    if len(examples) <= MOST:
        return examples
    return examples.take(torch.linspace(0, len(examples) - 1, MOST).long())
