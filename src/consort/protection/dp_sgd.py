"""DP-SGD: training steps on which no single example has much influence.

Abadi et al. 2016, Algorithm 1: examples are drawn independently (Poisson), the gradient of each is
clipped, noise is added to their sum, and the divisor is the expected number of examples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from consort.core.inputs import Inputs, each
from consort.core.randomness import Randomness
from consort.data.examples import Examples
from consort.errors import UsageError
from consort.federation.site import Site, Use
from consort.training.client import Client
from consort.training.local import LocalTraining
from consort.training.objectives import Found, Gradients, Objective, Step, gradients_of_sum

Losses = Callable[[Client, Examples], dict[str, Tensor]]
"""Computes the losses of a batch."""


def drawn(
    examples: Examples, rate: float, steps: int, randomness: Randomness
) -> Iterator[Examples]:
    """Draws batches by Poisson sampling.

    Args:
        examples: The examples to draw from.
        rate: The probability with which each example is in a batch.
        steps: The number of batches.
        randomness: The source of randomness; who is drawn must stay a secret.

    Yields:
        One batch at a time, which may be empty.
    """
    for _ in range(steps):
        chosen = randomness.uniform(len(examples)) < rate
        yield examples.take(chosen.nonzero().flatten())


def _as_batch(example: Tensor) -> Tensor:
    return example[None]


class _Loss(nn.Module):
    """The sum of a client's losses, as a function of its model's parameters."""

    def __init__(self, client: Client, losses: Losses) -> None:
        super().__init__()
        self.model = client.model
        self._losses = losses
        self._client = client

    def forward(self, inputs: Inputs, targets: dict[str, Tensor]) -> Tensor:
        """The loss of one example, whose `inputs` and `targets` have no batch dimension."""
        one = Examples(
            each(inputs, _as_batch), {task: target[None] for task, target in targets.items()}
        )
        return torch.stack(list(self._losses(self._client, one).values())).sum()


@dataclass(frozen=True)
class PrivateSteps:
    """Replaces the steps of local training by those of DP-SGD; a `StepRule`."""

    clip: float
    """The largest norm of one example's gradient."""
    noise: float
    """The standard deviation of the noise, in units of `clip`."""
    site: Site
    """Where the steps are charged."""
    randomness: Randomness
    """The source of noise, and of who is drawn."""

    def __call__(
        self,
        local: LocalTraining,
        client: Client,
        *,
        objective: Objective,
        gradients: Gradients,
        examples: Examples | None,
        names: Sequence[str],
        params: Sequence[Tensor],
    ) -> tuple[Step, Iterator[Examples]]:
        """Prepares the steps of DP-SGD, which are charged before the first of them is taken.

        Arguments and return value are those of `StepRule`.

        Raises:
            UsageError: If `examples` or other than the default `gradients` are given.
            Refused: If the steps are above the limit of the site.
        """
        if examples is not None or gradients is not gradients_of_sum:
            raise UsageError(
                "privacy.level = 'example' needs training on the client's own examples with the "
                "default gradients: choose another algorithm, or privacy.level = 'client'"
            )
        train = local.prepared(client)
        count = max(len(train), 1)
        rate = min(local.batch / count, 1.0)
        steps = local.steps if local.steps is not None else local.epochs * -(-count // local.batch)
        self.site.charge(client.state, Use("example", self.noise, rate, steps))

        def losses(client: Client, batch: Examples) -> dict[str, Tensor]:
            return local.weighted(objective(client, batch))

        step = self._step(client, losses, names, params, rate * count)
        return step, drawn(train, rate, steps, self.randomness)

    def _step(
        self,
        client: Client,
        losses: Losses,
        names: Sequence[str],
        params: Sequence[Tensor],
        expected: float,
    ) -> Step:
        """Returns a function for the mean loss of a batch and the noisy mean of its gradients."""
        module = _Loss(client, losses)

        def loss(values: dict[str, Tensor], inputs: Inputs, targets: dict[str, Tensor]) -> Tensor:
            found: Tensor = functional_call(module, values, (inputs, targets))
            return found

        of_each = vmap(grad_and_value(loss), in_dims=(None, 0, 0), randomness="different")

        def step(batch: Examples) -> Found:
            values = {f"model.{n}": p.detach() for n, p in zip(names, params, strict=True)}
            noise = noise_like(list(values.values()), self.noise * self.clip, self.randomness)
            if not len(batch):
                return [], [(n / expected).to(p.dtype) for n, p in zip(noise, params, strict=True)]
            grads, found = of_each(values, batch.loaded, batch.targets)
            sums = clipped_sums(list(grads.values()), self.clip)
            noisy = [((s + n) / expected).to(s.dtype) for s, n in zip(sums, noise, strict=True)]
            return [found.mean()], noisy

        return step


def noise_like(tensors: Iterable[Tensor], deviation: float, randomness: Randomness) -> list[Tensor]:
    """Draws Gaussian noise.

    Args:
        tensors: Tensors with the shapes of the noise.
        deviation: The standard deviation.
        randomness: The source of randomness.

    Returns:
        One tensor of noise for each of `tensors`; it may be more precise than these, so that a sum
        is rounded only once.
    """
    return [randomness.normal(t.shape, t.dtype) * deviation for t in tensors]


def clipped_sums(grads: Sequence[Tensor], limit: float) -> list[Tensor]:
    """Clips each example's gradient and sums over the examples.

    Args:
        grads: The gradients, one tensor per parameter, with the examples as first dimension.
        limit: The largest norm of one example's gradient over all parameters.

    Returns:
        One sum per parameter.
    """
    lengths = torch.stack([grad.flatten(1).norm(dim=1) for grad in grads]).norm(dim=0)
    factors = (limit / lengths).clamp(max=1.0)
    return [torch.tensordot(factors, grad, 1) for grad in grads]
