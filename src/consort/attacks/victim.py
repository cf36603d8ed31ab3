"""One client under attack: what is taken from its messages and its model, or why nothing is."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from consort.attacks.imprint import Imprint, imprinted, laplace_cutoffs
from consort.attacks.information import entropy, mutual_information
from consort.attacks.inversion import Gradient, Inverted, invert
from consort.attacks.recovery import Recovery, as_pictures, beside, bounds_of, recovery
from consort.attacks.rescale import rescaled
from consort.attacks.similarity import Perceptual
from consort.attacks.traffic import Update
from consort.core.params import slots
from consort.core.randomness import derive, generator_for
from consort.data.examples import Examples, Splits
from consort.domains.fingerprints.obfuscation import FpDfsn
from consort.models.multitask import MultiTaskModel
from consort.tasks import Task

EXAMPLES = 8
"""Examples that inversion looks for at once."""
BATCH = 8
"""Examples of the step in which a malicious server looks."""
BINS = 128
MOST = 400
"""Examples whose losses or features are looked at."""


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
        labels = labels_of(train)
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

    def information(self, model: MultiTaskModel) -> tuple[float, float] | str:
        """Bits that features tell of pictures, and bits in the features."""
        inputs = some(self.data.test).inputs
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


def labels_of(examples: Examples) -> NDArray[np.int64] | None:
    """Their classes, if one of their tasks is to tell classes."""
    for target in examples.targets.values():
        if target.ndim == 1 and not target.is_floating_point():
            return target.numpy()
    return None


def some(examples: Examples) -> Examples:
    """Evenly many over all examples, if there are more than are looked at."""
    if len(examples) <= MOST:
        return examples
    return examples.take(torch.linspace(0, len(examples) - 1, MOST).long())
