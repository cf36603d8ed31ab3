"""Steps in which no single example matters much: DP-SGD in the place of ordinary steps.

Abadi et al. 2016, Algorithm 1: examples are drawn independently (Poisson), the gradient of each is
clipped, noise is added to their sum, and the divisor is the expected number of examples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from consort.data.examples import Examples
from consort.errors import UsageError
from consort.protection.accounting import spend
from consort.training.client import Client
from consort.training.local import LocalTraining
from consort.training.objectives import Found, Gradients, Objective, Step, gradients_of_sum

Losses = Callable[[Client, Examples], dict[str, Tensor]]


def drawn(examples: Examples, rate: float, steps: int, generator: Generator) -> Iterator[Examples]:
    """So many batches, in each of them every example with the probability `rate`."""
    for _ in range(steps):
        chosen = torch.rand(len(examples), generator=generator) < rate
        yield examples.take(chosen.nonzero().flatten())


class _Loss(nn.Module):
    """The sum of a client's losses, as a function of its model's parameters."""

    def __init__(self, client: Client, losses: Losses) -> None:
        super().__init__()
        self.model = client.model
        self._losses = losses
        self._client = client

    def forward(self, inputs: Tensor, targets: dict[str, Tensor]) -> Tensor:
        """The loss of one example."""
        one = Examples(inputs[None], {task: target[None] for task, target in targets.items()})
        return torch.stack(list(self._losses(self._client, one).values())).sum()


@dataclass(frozen=True)
class PrivateSteps:
    """The steps of DP-SGD in the place of the ordinary ones; each call writes down its price."""

    clip: float
    """Largest length of one example's gradient."""
    noise: float
    """Deviation of the noise, in units of `clip`."""

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
        """DP-SGD's step and its randomly drawn batches: see `StepRule`."""
        if examples is not None or gradients is not gradients_of_sum:
            raise UsageError("privacy.level = 'example' needs the client's own examples")
        train = local.prepared(client)
        count = max(len(train), 1)
        rate = min(local.batch / count, 1.0)
        steps = local.steps if local.steps is not None else local.epochs * -(-count // local.batch)
        spend(client.state, rate, steps)

        def losses(client: Client, batch: Examples) -> dict[str, Tensor]:
            return local.weighted(objective(client, batch))

        step = self._step(client, losses, names, params, rate * count)
        return step, drawn(train, rate, steps, client.generator)

    def _step(
        self,
        client: Client,
        losses: Losses,
        names: Sequence[str],
        params: Sequence[Tensor],
        expected: float,
    ) -> Step:
        """From a batch to its mean loss and a noisy mean of clipped gradients."""
        module = _Loss(client, losses)

        def loss(values: dict[str, Tensor], inputs: Tensor, targets: dict[str, Tensor]) -> Tensor:
            found: Tensor = functional_call(module, values, (inputs, targets))
            return found

        each = vmap(grad_and_value(loss), in_dims=(None, 0, 0), randomness="different")

        def step(batch: Examples) -> Found:
            values = {f"model.{n}": p.detach() for n, p in zip(names, params, strict=True)}
            noise = noise_like(list(values.values()), self.noise * self.clip, client.generator)
            if not len(batch):
                return [], [tensor / expected for tensor in noise]
            grads, found = each(values, batch.inputs, batch.targets)
            sums = clipped_sums(list(grads.values()), self.clip)
            return [found.mean()], [(s + n) / expected for s, n in zip(sums, noise, strict=True)]

        return step


def noise_like(tensors: Iterable[Tensor], deviation: float, generator: Generator) -> list[Tensor]:
    """Gaussian noise of these shapes."""
    return [torch.randn(t.shape, generator=generator, dtype=t.dtype) * deviation for t in tensors]


def clipped_sums(grads: Sequence[Tensor], limit: float) -> list[Tensor]:
    """The sums over examples (the first dimension), each example's gradient cut to a length."""
    lengths = torch.stack([grad.flatten(1).norm(dim=1) for grad in grads]).norm(dim=0)
    factors = (limit / lengths).clamp(max=1.0)
    return [torch.tensordot(factors, grad, 1) for grad in grads]
