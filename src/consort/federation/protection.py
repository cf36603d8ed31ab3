"""The base class of everything that is done around an algorithm: protections and attacks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from torch import Generator

from consort.core.algorithm import Algorithm
from consort.core.contract import Contract
from consort.core.engine import Engine
from consort.core.messages import Call, Payload, State
from consort.errors import ClientFailed
from consort.federation.site import Site
from consort.training.steps import StepRule

if TYPE_CHECKING:
    from consort.federation.federation import Federation

F = TypeVar("F", bound="Federation")


@dataclass
class Request:
    """A call as a client handles it; protections on the client may read and change it."""

    call: Call
    """The call."""
    state: State
    """The state of the client; only assigning to a key is recorded."""
    generator: Generator
    """The random generator of this call; local training is the first to draw from it."""
    steps: StepRule | None = None
    """How local training takes its steps; None for the usual way."""
    site: Site = field(default_factory=Site)
    """What the client keeps to itself: secret randomness, one-time secrets, what it has spent."""
    flops: int = 0
    """The floating-point operations of the algorithm's method, if they are counted."""


Handler = Callable[[Request], Payload]
"""Replies to a request on a client. The innermost handler runs the algorithm's method."""


@dataclass(frozen=True)
class Setting:
    """The run that a protection is used in."""

    federation: Federation
    """The clients, with all protections."""
    algorithm: Algorithm[Any]
    """The algorithm that is run."""
    tell: Callable[[ClientFailed], Any] = lambda _: None
    """Reports a client whose reply is not used."""


@dataclass(frozen=True)
class Protection:
    """The base class of protections: what is done around an algorithm on the server and on clients.

    A protection is a frozen dataclass whose fields are the options of its table in a recipe. By
    default every method does nothing, so a protection overrides only what it needs. The protections
    of a federation are an ordered list: on clients, a later one is wrapped around those before it;
    on the server, a later one is closer to the algorithm.

    Examples:
        Clients that stop to reply after some rounds:

        >>> from dataclasses import dataclass
        >>> from consort import Failure, Protection
        >>> @dataclass(frozen=True)
        ... class Limited(Protection):
        ...     rounds: int
        ...
        ...     def client(self, handler, setting):
        ...         def limited(request):
        ...             if request.call.round > self.rounds:
        ...                 raise Failure(f"it replies in {self.rounds} rounds only")
        ...             return handler(request)
        ...
        ...         return limited
        >>> Limited(rounds=10)
        Limited(rounds=10)
    """

    table: ClassVar[str] = ""
    """The key of its table in recipes; the name of the class in small letters, if not given."""
    alone: ClassVar[bool] = False
    """Whether clients must be called one by one, because it needs their state or randomness."""
    rewrites: ClassVar[bool] = False
    """Whether clients send answers in another form, which the server half checks and restores."""
    measures: ClassVar[Contract] = {}
    """Numbers that its client half adds to the scores of evaluations, as `on_client` takes them."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.table = vars(cls).get("table", cls.__name__.lower())

    @property
    def needs_single_answers(self) -> bool:
        """Whether the server half needs single replies, which then must not be hidden from it."""
        return False

    def check(self, federation: Federation, algorithm: Algorithm[Any], present: int) -> None:
        """Checks, before anything is trained, that it can protect a run.

        Args:
            federation: The clients, with all protections.
            algorithm: The algorithm that is to be run.
            present: The number of clients that take part in a round.

        Raises:
            UsageError: If the protection does not suit the federation or the algorithm.
        """

    def check_client(self, federation: Federation, client: str, algorithm: Algorithm[Any]) -> None:
        """Checks that it can protect a client; in a deployment, each client checks itself.

        Args:
            federation: The clients of this machine, with all protections.
            client: The name of one of them.
            algorithm: The algorithm that is to be run.

        Raises:
            UsageError: If the protection does not suit the client, or a package that it needs is
                missing.
        """

    def prepared(self, federation: F) -> F:
        """Changes the members of a federation, such as their data.

        Args:
            federation: The clients.

        Returns:
            The changed federation; by default the same.
        """
        return federation

    def server(self, engine: Engine, setting: Setting) -> Engine:  # noqa: ARG002
        """The server half: wraps the engine.

        Args:
            engine: The engine that reaches the clients.
            setting: The run.

        Returns:
            The engine that the algorithm uses; by default the same.
        """
        return engine

    def client(self, handler: Handler, setting: Setting) -> Handler:  # noqa: ARG002
        """The client half: wraps the handler of calls.

        Args:
            handler: The handler that runs the algorithm's method.
            setting: The run.

        Returns:
            The handler that replies to the server; by default the same.
        """
        return handler

    def during_round(self, algorithm: Algorithm[Any]) -> AbstractContextManager[Any]:  # noqa: ARG002
        """A context in which the server computes a round, such as another rule for means.

        Args:
            algorithm: The algorithm that is run.
        """
        return nullcontext()
