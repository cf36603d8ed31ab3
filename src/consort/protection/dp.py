"""Differential privacy of what clients send, with the budget that was spent so far.

McMahan, Ramage, Talwar and Zhang: Learning Differentially Private Recurrent Language Models, ICLR
2018 (whole clients); Abadi et al.: Deep Learning with Differential Privacy, CCS 2016 (examples).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Gt, Lt
from pydantic import Strict
from torch import nn

from consort.aggregation.robust import clipped
from consort.core.algorithm import Algorithm
from consort.core.bounds import PositiveFloat
from consort.core.contract import Contract, Number
from consort.core.messages import Payload
from consort.core.params import Params
from consort.core.randomness import Randomness
from consort.core.wire import tensors_in
from consort.errors import Failure, Refused, UsageError
from consort.federation.federation import Federation
from consort.federation.protection import Handler, Protection, Request, Setting
from consort.federation.site import Use
from consort.protection.accounting import accountant, earlier, spent
from consort.protection.dp_sgd import PrivateSteps, noise_like
from consort.protection.updates import reworked
from consort.tasks import Task

PUBLIC = ("examples",)
"""Entries of an answer that are sent unchanged and are not covered by the guarantee."""


@dataclass(frozen=True)
class Privacy(Protection):
    """Differential privacy of single examples, or of whole clients."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}
    table: ClassVar[str] = "privacy"
    alone: ClassVar[bool] = True
    measures: ClassVar[Contract] = {"epsilon": Number(0, finite=False)}

    level: Literal["client", "example"]
    """What is protected: a whole `client`, by clipping and noise in every answer, or a single
    `example`, by clipping and noise in every training step."""
    clip: PositiveFloat = 1.0
    """The largest norm of an answer's update, or of one example's gradient."""
    noise: PositiveFloat = 1.0
    """The standard deviation of the noise, in units of `clip`."""
    delta: Annotated[float, Strict(), Gt(0), Lt(1)] = 1e-5
    """The probability with which epsilon may not hold."""

    def check(self, federation: Federation, algorithm: Algorithm[Any], present: int) -> None:  # noqa: ARG002
        """Refuses an algorithm that the guarantee does not cover.

        Raises:
            UsageError: If the algorithm uses training data in other ways than by training steps.
        """
        self._check_algorithm(algorithm)

    def check_client(self, federation: Federation, client: str, algorithm: Algorithm[Any]) -> None:
        """Refuses clients whose models or tasks mix the examples of a batch.

        A client checks the algorithm as well, because a server may not have done it.

        Raises:
            UsageError: If `level` is `example` and the client uses `local.balance`, BatchNorm, a
                loss that compares examples or an evaluation that uses training data, or the
                algorithm is not covered, or if Opacus is not installed.
        """
        accountant()
        if self.level == "client":
            return
        self._check_algorithm(algorithm)
        if federation.extras:
            raise UsageError(
                "privacy.level = 'example' protects training steps, but further evaluations, such "
                "as [verification], compare with training examples: remove them"
            )
        trained = algorithm.with_local(federation.members[client].local)
        if getattr(getattr(trained, "local", None), "balance", False):
            raise UsageError(
                "privacy.level = 'example' counts each example once: remove local.balance"
            )
        _refuse_batchnorm(client, federation.blueprint(client).model)
        _refuse_comparisons(client, federation.members[client].tasks)

    def client(self, handler: Handler, setting: Setting) -> Handler:  # noqa: ARG002
        """Adds noise to answers or to training steps; evaluations also report the epsilon spent."""

        def private(request: Request) -> Payload:
            randomness = request.site.randomness(request.generator)
            if self.level == "example":
                request.steps = PrivateSteps(self.clip, self.noise, request.site, randomness)
            if request.call.evaluation:
                return self._evaluated(handler, request)
            use = Use("client", self.noise, 1.0, 1)
            if self.level == "client":
                request.site.afford(use)
            content = handler(request)
            self._refuse_uncovered(content)
            if self.level == "example" or content.keys() <= set(PUBLIC):
                return content
            request.site.charge(request.state, use)
            return self.protected(content, request.call.payload, randomness)

        return private

    def protected(self, content: Payload, received: Payload, randomness: Randomness) -> Payload:
        """Clips an answer and adds noise to it.

        Args:
            content: The answer.
            received: The payload that the client received.
            randomness: The source of the noise.

        Returns:
            The answer that may be sent.
        """
        return reworked(content, received, lambda update: self._noised(update, randomness))

    def _noised(self, update: Params, randomness: Randomness) -> Params:
        within = clipped(update, self.clip)
        noise = noise_like(within.values(), self.noise * self.clip, randomness)
        noisy = zip(within.items(), noise, strict=True)
        return Params({name: (tensor + n).to(tensor.dtype) for (name, tensor), n in noisy})

    def _evaluated(self, handler: Handler, request: Request) -> Payload:
        """The scores, with the epsilon that was spent, fine-tuning for these scores included."""
        if self.level == "client" and request.site.limited:
            request.steps = _refused_steps
        content = handler(request)
        if tensors_in(content):
            raise Refused("with [privacy], it sends only scores in evaluations, no tensors")
        return content | {"epsilon": self.epsilon(request)}

    def epsilon(self, request: Request) -> float:
        """The epsilon that the client of a `request` has spent in this run so far."""
        before = earlier(request.state, self.level, self.noise)
        return spent([*before, *request.site.charged(request.state)], self.delta)

    def _check_algorithm(self, algorithm: Algorithm[Any]) -> None:
        if self.level == "example" and not algorithm.known_to_train_only_by_steps():
            raise UsageError(
                f"privacy.level = 'example' protects training steps, but "
                f"{type(algorithm).__name__} may learn from its data in other ways: use an "
                "algorithm that declares `trains_only_by_steps`, such as fedavg, or "
                "privacy.level = 'client'"
            )

    def _refuse_uncovered(self, content: Payload) -> None:
        for key, value in content.items():
            if key not in PUBLIC and not _is_parameters(value):
                raise Failure(
                    f"its answer has {key!r}, which privacy.level = {self.level!r} cannot protect: "
                    "choose an algorithm that sends only parameters, or remove [privacy]"
                )


def _refused_steps(*_: Any, **__: Any) -> Any:
    """A `StepRule` of clients with a limit: fine-tuning in evaluations gets no noise."""
    raise Refused(
        "its limit of epsilon does not allow training without noise, which fine-tuning before an "
        "evaluation would be: use privacy.level = 'example', or an algorithm without it"
    )


def _is_parameters(value: Any) -> bool:
    """Whether a value is made of `Params`; other values may reveal a client's classes by keys."""
    many = isinstance(value, list | tuple)
    return isinstance(value, Params) or (many and all(isinstance(v, Params) for v in value))


def _refuse_comparisons(client: str, tasks: Mapping[str, Task]) -> None:
    for name, task in tasks.items():
        if getattr(task, "compares_examples", False):
            raise UsageError(
                f"privacy.level = 'example' needs a loss of every example alone, but {name} of "
                f"client {client} compares examples: use privacy.level = 'client'"
            )


def _refuse_batchnorm(client: str, model: nn.Module) -> None:
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            raise UsageError(
                f"privacy.level = 'example' needs gradients of single examples, but BatchNorm "
                f"({name} in the model of client {client}) mixes them: choose a model without it, "
                "or privacy.level = 'client'"
            )
