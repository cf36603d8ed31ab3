"""Robust aggregation rules in the place of the mean: the table `robust` of a recipe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from consort.aggregation.robust import clipped, krum, median, multi_krum, trimmed_mean
from consort.core.algorithm import Algorithm
from consort.core.bounds import PositiveFloat, PositiveInt
from consort.core.engine import Engine
from consort.core.messages import Call, Reply, averaging
from consort.core.params import Params, mean
from consort.engines.middleware import Wrapper
from consort.errors import UsageError
from consort.federation.federation import Federation
from consort.federation.protection import Protection, Setting
from consort.protection.updates import reworked

_FEWEST = {"trimmed_mean": (2, 1), "krum": (2, 3), "multi_krum": (2, 3)}
"""The number of answers that a rule needs: (per malicious client, in addition)."""


@dataclass(frozen=True)
class Robust(Protection):
    """Robust aggregation, against clients that send wrong updates."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}
    table: ClassVar[str] = "robust"

    rule: Literal["mean", "median", "trimmed_mean", "krum", "multi_krum"] = "mean"
    """The aggregation rule; all but `mean` ignore the weights of the clients."""
    malicious: PositiveInt = 1
    """The number of malicious clients to tolerate; not used by `mean` and `median`."""
    clip: PositiveFloat | None = None
    """The largest norm of an answer's update; a longer one is scaled down."""

    def __call__(self, items: Sequence[Params], weights: Sequence[float] | None) -> Params:
        """Aggregates by the rule, in the place of `mean`.

        Args:
            items: The parameters that clients sent.
            weights: The clients' weights; only the rule `mean` uses them, but all rules leave out
                clients with weight 0.

        Returns:
            The aggregate.

        Raises:
            NoReplies: If there are too few answers for the rule.
        """
        if self.rule == "mean":
            return mean(items, weights)
        if weights is not None:
            items = [item for item, weight in zip(items, weights, strict=True) if weight]
        match self.rule:
            case "median":
                return median(items)
            case "trimmed_mean":
                return trimmed_mean(items, self.malicious)
            case "krum":
                return krum(items, self.malicious)
            case "multi_krum":
                return multi_krum(items, self.malicious)

    @property
    def needs_single_answers(self) -> bool:
        """Whether single answers must be visible: for all rules but the mean, and for clipping."""
        return self.rule != "mean" or self.clip is not None

    def check(self, federation: Federation, algorithm: Algorithm[Any], present: int) -> None:  # noqa: ARG002
        """Refuses a federation in which too few clients take part in a round.

        Raises:
            UsageError: If the rule needs more clients.
        """
        per_client, more = _FEWEST.get(self.rule, (0, 1))
        fewest = per_client * self.malicious + more
        if present < fewest:
            raise UsageError(
                f"robust.rule = {self.rule!r} against {self.malicious} malicious needs {fewest} "
                f"clients in every round, but {present} take part: lower robust.malicious, or "
                "choose 'median'"
            )

    def server(self, engine: Engine, setting: Setting) -> Engine:  # noqa: ARG002
        """Clips the updates that clients send, if `clip` is given."""
        return engine if self.clip is None else Clipped(engine, self.clip)

    @contextmanager
    def during_round(self, algorithm: Algorithm[Any]) -> Iterator[None]:
        """Replaces every mean of answers by the rule.

        Raises:
            UsageError: If the round computed no mean that the rule could replace.
        """
        if self.rule == "mean":
            yield
            return
        with averaging(self) as taken:
            yield
        if not taken:
            raise UsageError(
                f"{type(algorithm).__name__} takes no mean of its clients' answers that "
                f"robust.rule = {self.rule!r} could replace: remove the rule, or choose "
                "an algorithm that averages, such as fedavg"
            )


@dataclass
class Clipped(Wrapper):
    """Clips the updates that clients send."""

    limit: float
    """The largest norm of an update."""

    def deliver(self, calls: Sequence[Call]) -> Iterator[Reply]:
        """Delivers `calls` and clips the updates in the replies; evaluation is not changed."""
        for call, reply in zip(calls, self.engine.deliver(calls), strict=True):
            yield reply if call.evaluation or reply.error else self._clipped(call, reply)

    def _clipped(self, call: Call, reply: Reply) -> Reply:
        content = reworked(reply.content, call.payload, lambda update: clipped(update, self.limit))
        return reply if content is reply.content else replace(reply, content=content)
