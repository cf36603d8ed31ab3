"""Another rule in the place of the mean, as a recipe's table."""

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
"""How many answers a rule needs: so many per malicious client, and so many more."""


@dataclass(frozen=True)
class Robust(Protection):
    """What the server does against clients that send wrong updates."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}
    table: ClassVar[str] = "robust"

    rule: Literal["mean", "median", "trimmed_mean", "krum", "multi_krum"] = "mean"
    """What takes the place of the mean; all but `mean` count every client alike."""
    malicious: PositiveInt = 1
    """So many malicious clients shall not matter (to all rules but the mean and the median)."""
    clip: PositiveFloat | None = None
    """Largest length of an answer's update; a longer one is shortened."""

    def __call__(self, items: Sequence[Params], weights: Sequence[float] | None) -> Params:
        """Takes the place of `mean`; who weighs nothing has no say."""
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
        """A mean of clipped updates is no longer the mean of what was sent."""
        return self.rule != "mean" or self.clip is not None

    def check(self, federation: Federation, algorithm: Algorithm[Any], present: int) -> None:  # noqa: ARG002
        """Refuses a federation in which too few answer."""
        per_client, more = _FEWEST.get(self.rule, (0, 1))
        fewest = per_client * self.malicious + more
        if present < fewest:
            raise UsageError(
                f"robust.rule = {self.rule!r} against {self.malicious} malicious needs {fewest} "
                f"clients in every round, but {present} take part: lower robust.malicious, or "
                "choose 'median'"
            )

    def server(self, engine: Engine, setting: Setting) -> Engine:  # noqa: ARG002
        """Shortens the updates that are too long, if there is a limit."""
        return engine if self.clip is None else Clipped(engine, self.clip)

    @contextmanager
    def during_round(self, algorithm: Algorithm[Any]) -> Iterator[None]:
        """The rule takes the place of every mean of answers; one that is never used is refused."""
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
    """Shortens updates that are too long."""

    limit: float

    def deliver(self, calls: Sequence[Call]) -> Iterator[Reply]:
        """Evaluation is left as it is."""
        for call, reply in zip(calls, self.engine.deliver(calls), strict=True):
            yield reply if call.evaluation or reply.error else self._clipped(call, reply)

    def _clipped(self, call: Call, reply: Reply) -> Reply:
        content = reworked(reply.content, call.payload, lambda update: clipped(update, self.limit))
        return reply if content is reply.content else replace(reply, content=content)
