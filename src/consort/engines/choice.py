"""Which engine carries the calls: the user's choice, which decides no number."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from consort.errors import UsageError

if TYPE_CHECKING:
    from consort.core.engine import Engine
    from consort.engines.host import ClientHost


class EngineName(StrEnum):
    """The engines a user can name."""

    embedded = "embedded"
    workers = "workers"
    ray = "ray"


@dataclass(frozen=True)
class Origin:
    """How another machine comes by the same clients: a function by name and what to give it.

    The function at `place` (`package.module:name`) answers a federation and an algorithm; its
    arguments are plain values, so that nothing is ever pickled.
    """

    place: str
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class EngineChoice:
    """An engine, the number of its processes, and for Ray the cluster to join."""

    name: EngineName | None = None
    """If not given: forked workers if there are several, else this process."""
    workers: int = 1
    address: str | None = None
    """Of a Ray cluster: `auto`, `host:port` or `ray://host:port`; without it, one is started."""

    def __post_init__(self) -> None:
        if self.name == EngineName.embedded and self.workers > 1:
            raise UsageError("the embedded engine is one process: leave out --workers or --engine")
        if self.address and self.name != EngineName.ray:
            raise UsageError("--address is that of a Ray cluster: add --engine ray")

    @property
    def description(self) -> dict[str, Any]:
        """What `run.json` keeps of it."""
        return {"engine": self.name, "workers": self.workers, "address": self.address}

    def start(self, host: ClientHost, origin: Origin) -> Engine:
        """The engine, ready to deliver."""
        from consort.engines.embedded import Embedded
        from consort.engines.workers import Workers

        if self.name == EngineName.ray:
            from consort.engines.ray import Ray

            return Ray(host, origin, self.workers, self.address)
        if self.name == EngineName.workers or self.workers > 1:
            return Workers(host, self.workers)
        return Embedded(host)
