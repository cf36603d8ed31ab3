"""The attacks on one client: what they recover, or why they cannot be tried."""

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
from consort.attacks.inversion import Gradient, Inversion, invert
from consort.attacks.recovery import Recovery, as_pictures, bounds_of, match_and_score, score_pairs
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
"""The number of examples that an inversion recovers together."""
BATCH = 8
"""The number of examples in the training step that a malicious server attacks."""
BINS = 128
MOST = 400
"""The largest number of examples whose losses or features are computed."""


@dataclass(frozen=True)
class Victim:
    """An attacked client. Attackers know its architecture and tasks; its data score the attacks."""

    client: str
    initial_model: Callable[[], MultiTaskModel]
    """Builds its model with initial weights."""
    tasks: Mapping[str, Task]
    data: Splits
    seed: int
    clean: Examples | None = None
    """Its training examples before obfuscation, if they are obfuscated."""
    perceptual: Perceptual | None = None
    """An additional distance between images."""

    def invert(self, updates: Sequence[Update], steps: int) -> Recovery | str:
        """Gradient inversion of the largest usable update.

        Args:
            updates: What was sent, the largest first.
            steps: The number of optimisation steps.

        Returns:
            The recovered examples; text says why the attack was not tried.
        """
        inputs = self.data.train.tensor
        if not inputs.is_floating_point():
            return (
                "Not tried: the examples are texts, which cannot be optimised by gradient descent."
            )
        useful = [update for update in updates if update.direction.only(*_INPUT_PARTS)]
        if not useful:
            return (
                "Not tried: inputs cannot be computed from what was sent, since no update of the "
                "part of the model that processes them left the client."
            )
        if not len(self.data.train):
            return "Not tried: the client has no training examples."
        found = self.inverted(useful[0], steps)
        return self._judged(found.inputs, MOST, found.cosine)

    def inverted(self, update: Update, steps: int) -> Inversion:
        """Inverts one update; the attacker is given labels in the proportions of the client's.

        Args:
            update: The update.
            steps: The number of optimisation steps.
        """
        known = self._stratified(min(EXAMPLES, len(self.data.train)))
        bounds = bounds_of(self.data.train.tensor)
        generator = generator_for(self.seed, self.client, "inversion")
        share = torch.rand(known.tensor.shape, generator=generator)
        start = bounds[0] + (bounds[1] - bounds[0]) * share
        model = copy.deepcopy(self.initial_model()).eval()
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

    def _stratified(self, count: int) -> Examples:
        """A number of training examples with the class proportions of the whole."""
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
        """The training loss of a model and of its companion, if it has one.

        Args:
            model: The model.
            inputs: The inputs.
            targets: The targets by task.
        """
        models = [model] if model.companion is None else [model, model.companion]
        outputs = [one(inputs, self.tasks) for one in models]
        found = [t.loss(o[name], targets[name]) for o in outputs for name, t in self.tasks.items()]
        return torch.stack(found).sum()

    def imprint(self) -> Recovery | str:
        """The imprint attack: a malicious server puts a layer of its own in front of the model.

        Returns:
            The recovered examples; text says why the attack was not tried.
        """
        batch = self.data.train.rows(0, min(BATCH, len(self.data.train)))
        if not batch.tensor.is_floating_point():
            return "Not tried: the examples are texts, which cannot be averaged."
        if not len(batch) or not len(self.data.test):
            return "Not tried: there are too few examples."
        layer = self.imprint_layer()
        grads = self.imprint_gradients(layer, batch)
        found = imprinted(*grads).view(-1, *as_pictures(batch.tensor).shape[1:])
        return (
            self._judged(found, BATCH)
            if len(found)
            else "Nothing was recovered: the gradients of the layer are zero."
        )

    def imprint_layer(self) -> Imprint:
        """The layer of a malicious server, with bins fitted to test examples."""
        pictures = as_pictures(self.data.test.tensor)
        means = pictures.flatten(1).mean(1)
        middle = means.median().item()
        spread = max((means - middle).abs().mean().item(), 1e-6)
        return Imprint(pictures.shape[1:], laplace_cutoffs(BINS, middle, spread))

    def imprint_gradients(self, layer: Imprint, batch: Examples) -> tuple[Tensor, ...]:
        """The gradients of the layer's weights and biases in a step on a batch."""
        model = copy.deepcopy(self.initial_model()).eval()
        seen = layer(as_pictures(batch.tensor)).view_as(batch.tensor)
        loss = self.loss(model, seen, batch.targets)
        return torch.autograd.grad(loss, [layer.sort.weight, layer.sort.bias])

    def _judged(self, found: Tensor, most: int, cosine: float = math.nan) -> Recovery:
        """Scores recovered examples against the first training examples before obfuscation."""
        seen, others = self.data.train.tensor[:most], self.data.test
        clean = (self.clean or self.data.train).tensor
        mean = (others if len(others) else self.data.train).tensor.mean(0, keepdim=True)
        return match_and_score(
            found, seen, clean[:most], mean, bounds_of(clean), cosine, self.perceptual
        )

    def information(self, model: MultiTaskModel) -> tuple[float, float] | str:
        """Mutual information of features and images, and entropy of the features.

        Returns:
            Bits; text says why they were not measured.
        """
        inputs = subsample(self.data.test).tensor
        if inputs.ndim not in (4, 5) or not len(inputs):
            return "Not measured: the examples are not images."
        with torch.inference_mode():
            features = model.eval().encoder(inputs)
        if not isinstance(features, Tensor):
            return "Not measured: the encoder outputs maps of several sizes, not one vector."
        vectors = features.flatten(2).mean(2) if features.ndim > 2 else features
        first = inputs[:, 0] if inputs.ndim == 5 else inputs
        pictures, values = first.mean(1).double().numpy(), vectors.double().numpy()
        rng = np.random.default_rng(derive(self.seed, self.client, "information"))
        return mutual_information(pictures, values, rng), entropy(values)

    def rescale(self, way: FpDfsn, clean: Examples) -> Recovery:
        """Undoes the obfuscation of FP-DFSN; the baseline is the obfuscated image.

        Args:
            way: The obfuscation.
            clean: The training examples before it.
        """
        seen, originals = (as_pictures(part.tensor[:BATCH]) for part in (self.data.train, clean))
        return score_pairs(rescaled(seen, way.beta), originals, seen, self.perceptual)


_INPUT_PARTS = ("encoder", "companion.encoder")
"""The parts of a model whose gradients depend on the inputs, not only on features."""


def labels_of(examples: Examples) -> NDArray[np.int64] | None:
    """The classes of the examples, if one of their tasks is a classification."""
    for target in examples.targets.values():
        if target.ndim == 1 and not target.is_floating_point():
            return target.numpy()
    return None


def subsample(examples: Examples) -> Examples:
    """At most `MOST` examples, evenly spaced."""
    if len(examples) <= MOST:
        return examples
    return examples.take(torch.linspace(0, len(examples) - 1, MOST).long())
