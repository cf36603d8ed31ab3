"""The seam for everything that is done around an algorithm: protections, and attacks on them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from torch import Generator

from consort.core.algorithm import Algorithm
from consort.core.engine import Engine
from consort.core.messages import Call, Payload, State
from consort.errors import ClientFailed
from consort.training.steps import StepRule

if TYPE_CHECKING:
    from consort.federation.federation import Federation

F = TypeVar("F", bound="Federation")


@dataclass
class Request:
    """One call as a client handles it: what protections on the client see and may change."""

    call: Call
    state: State
    """What the client remembers; assigning to a key is what makes it remembered."""
    generator: Generator
    """The randomness of this call, which local training draws from first."""
    steps: StepRule | None = None
    """How local training takes its steps, if not in the ordinary way."""
    flops: int = 0
    """Operations of the algorithm's own method, if they are counted."""


Handler = Callable[[Request], Payload]
"""Answers a request on a client. The innermost one runs the algorithm's method."""


@dataclass(frozen=True)
class Setting:
    """Where a protection is at work."""

    federation: Federation
    algorithm: Algorithm[Any]
    tell: Callable[[ClientFailed], Any] = lambda _: None
    """Reports a client whose answer is not used."""


@dataclass(frozen=True)
class Protection:
    """A pair: what is done around an algorithm on the server, and what on every client.

    A protection is a frozen dataclass; its fields are the options of its table in a recipe.
    Everything has a default that does nothing, so a protection defines only what it needs. The
    protections of a federation are a list: on clients, a later one is wrapped around those before
    it; on the server, a later one is nearer to the algorithm.
    """

    table: ClassVar[str] = ""
    """The key of its table in recipes; the name of the class in small letters, if not given."""
    alone: ClassVar[bool] = False
    """Whether clients must answer one by one, because it needs a client's state or randomness."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.table = vars(cls).get("table", cls.__name__.lower())

    @property
    def needs_single_answers(self) -> bool:
        """Whether it reads or changes single answers, so that they must not be hidden from it."""
        return False

    def check(self, federation: Federation, algorithm: Algorithm[Any], present: int) -> None:
        """Refuses what it cannot protect, before anything is trained.

        Args:
            federation: The clients, with all protections.
            algorithm: The algorithm that is to run.
            present: How many clients take part in a round.

        Raises:
            UsageError: The protection does not fit.
        """

    def check_client(self, federation: Federation, client: str, algorithm: Algorithm[Any]) -> None:
        """Refuses a client that it cannot protect; among institutions, each asks for itself.

        Args:
            federation: The clients of this machine, with all protections.
            client: One of them.
            algorithm: The algorithm that is to run.

        Raises:
            UsageError: The client does not fit, or a package that it needs is missing.
        """

    def prepared(self, federation: F) -> F:
        """The federation with what this changes about its members, such as their data."""
        return federation

    def server(self, engine: Engine, setting: Setting) -> Engine:  # noqa: ARG002
        """The server's half: an engine around the engine that reaches the clients."""
        return engine

    def client(self, handler: Handler, setting: Setting) -> Handler:  # noqa: ARG002
        """The client's half: a handler around the handler that runs the algorithm's method."""
        return handler

    def during_round(self, algorithm: Algorithm[Any]) -> AbstractContextManager[Any]:  # noqa: ARG002
        """What holds while the server computes a round, such as another rule for means."""
        return nullcontext()
