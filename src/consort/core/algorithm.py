"""The base class of algorithms, and the clients of a round as the server sees them."""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, TypeVar

from torch import Generator

from consort.core.engine import Engine
from consort.core.messages import Call, Each, Payload, Replies
from consort.core.randomness import generator_for
from consort.core.roster import Roster
from consort.core.row import Row
from consort.errors import UsageError

S = TypeVar("S")
Method = TypeVar("Method", bound=Callable[..., Payload])


def on_client(method: Method) -> Method:
    """Marks a method of an algorithm as one that runs on clients.

    Only methods with this mark can be called from the server.

    Args:
        method: A method that receives a `Client` and, as keyword arguments, what the server sends.
            It returns the client's reply as a dict.

    Returns:
        The same method.

    Examples:
        >>> from consort import on_client
        >>> @on_client
        ... def train(self, client, model):
        ...     return {"examples": client.examples}
        >>> train.on_client
        True
    """
    method.__dict__["on_client"] = True
    return method


def batchable(method: Method) -> Method:
    """Marks a client method that may be run once for a whole `Cohort` instead of once per client.

    Such a method may load parameters, call `self.local.run` with the default objective, and return
    parameters and `client.examples`. It may not use the client's state, data or scores.

    Args:
        method: A method that is marked with `on_client`.

    Returns:
        The same method.

    Examples:
        >>> from consort import Params, batchable, on_client
        >>> @batchable
        ... @on_client
        ... def train(self, client, model):
        ...     model.load_into(client.model)
        ...     self.local.run(client)
        ...     return {"model": Params.of(client.model), "examples": client.examples}
        >>> train.batchable
        True
    """
    method.__dict__["batchable"] = True
    return method


def is_batchable(method: object) -> bool:
    """Whether `method` is marked with `batchable`."""
    return bool(getattr(method, "batchable", False))


def is_on_client(method: object) -> bool:
    """Whether `method` is marked with `on_client`."""
    return bool(getattr(method, "on_client", False))


@dataclass(frozen=True)
class Clients:
    """The clients that take part in a round, as the server sees them.

    Examples:
        An engine that replies for all clients stands for a federation here.

        >>> from consort import Clients, on_client
        >>> from consort.core.messages import Reply
        >>> class Echo:
        ...     def deliver(self, calls):
        ...         return (Reply(call.client, call.payload) for call in calls)
        >>> @on_client
        ... def train(self, client, rate): ...
        >>> ids = ("bank-1", "bank-2")
        >>> clients = Clients(ids, round=1, rounds=5, seed=0, engine=Echo(), population=2)
        >>> clients.ask(train, rate=0.1).each("rate")
        {'bank-1': 0.1, 'bank-2': 0.1}
    """

    ids: tuple[str, ...]
    """The names of the clients, in order."""
    round: int
    """The number of the round, counted from 1."""
    rounds: int
    """The number of rounds of the run."""
    seed: int
    """The seed of the run."""
    engine: Engine
    """Delivers calls to the clients."""
    population: int
    """The number of clients of the federation, whether they take part or not."""
    evaluation: bool = False
    """Whether clients are only evaluated; then they keep no changes of their state."""
    asked: list[str] = field(default_factory=list)
    """The methods that were called in this round so far, in order."""
    notes: list[Row] = field(default_factory=list)
    """The values that the algorithm recorded in this round: see `note`."""

    def ask(self, method: Callable[..., Payload], /, **payload: Any) -> Replies:
        """Calls a method on every client and waits for all replies.

        Args:
            method: A method of the algorithm that is marked with `on_client`.
            **payload: Its arguments; an `Each` holds a different value for each client.

        Returns:
            The replies; clients that failed are left out.

        Raises:
            UsageError: If the method is not marked with `on_client`.
        """
        return Replies(dict(self.stream(method, **payload)))

    def stream(
        self, method: Callable[..., Payload], /, **payload: Any
    ) -> Iterator[tuple[str, Payload]]:
        """Calls a method like `ask`, but yields one reply at a time, in client order.

        For servers that cannot hold the models of all clients at once.

        Args:
            method: A method of the algorithm that is marked with `on_client`.
            **payload: Its arguments; an `Each` holds a different value for each client.

        Yields:
            The name of each client that replied, with its reply.

        Raises:
            UsageError: If the method is not marked with `on_client`.
        """
        name = getattr(method, "__name__", str(method))
        if not is_on_client(method):
            raise UsageError(f"{name} is not a client method: mark it with @on_client")
        step, turn = len(self.asked), self.asked.count(name)
        self.asked.append(name)
        calls = [
            Call(
                client, name, self.round, step, turn, _payload_for(client, payload), self.evaluation
            )
            for client in self.ids
        ]
        for reply in self.engine.deliver(calls):
            if reply.error is None:
                yield reply.client, reply.content

    def among(self, ids: Iterable[str]) -> Clients:
        """The same round with only some of its clients.

        Args:
            ids: The names of the clients to keep; others are ignored.

        Returns:
            The remaining clients, in the same order.
        """
        chosen = set(ids)
        return replace(self, ids=tuple(client for client in self.ids if client in chosen))

    def note(self, name: str, value: float | Mapping[str, float], part: str = "") -> None:
        """Records a value, or one per client, in the history of the run.

        Args:
            name: The metric under which it is recorded.
            value: The value, or the value of each client by name.
            part: What the value belongs to, if there are several under one name.
        """
        values = value if isinstance(value, Mapping) else {"": value}
        self.notes.extend(Row(self.round, name, v, c, part=part) for c, v in values.items())

    @property
    def generator(self) -> Generator:
        """The server's random generator for this round."""
        return generator_for(self.seed, self.round, "server")


def _payload_for(client: str, payload: Payload) -> Payload:
    return {
        key: value[client] if isinstance(value, Each) else value for key, value in payload.items()
    }


class Algorithm(Generic[S]):
    """The base class of algorithms, which are frozen dataclasses of hyper-parameters.

    The server half is `start`, `round` and `evaluate`. Its state S is a dataclass of `Params`,
    tensors, numbers, lists and dicts, which `round` receives and returns. The client half consists
    of the methods that are marked with `@on_client`.

    Examples:
        >>> from dataclasses import dataclass
        >>> from consort import Algorithm, LocalTraining, Params, on_client
        >>> @dataclass(frozen=True)
        ... class State:
        ...     model: Params
        >>> @dataclass(frozen=True)
        ... class Averaging(Algorithm[State]):
        ...     local: LocalTraining = LocalTraining()
        ...
        ...     def start(self, roster):
        ...         return State(roster.shared())
        ...
        ...     def round(self, server, clients):
        ...         replies = clients.ask(self.train, model=server.model)
        ...         return State(replies.mean("model", weight="examples"))
        ...
        ...     @on_client
        ...     def train(self, client, model):
        ...         model.load_into(client.model)
        ...         self.local.run(client)
        ...         return {"model": Params.of(client.model), "examples": client.examples}
        >>> Averaging(LocalTraining(lr=0.1)).local.lr
        0.1
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    reports: ClassVar[str] = "global"
    """Which of the models in the replies of `evaluate` represents the algorithm in tables."""

    private: ClassVar[tuple[str, ...]] = ()
    """The roles of parameters that never leave a client; a client refuses to send them."""

    averages: ClassVar[Mapping[str, str | None]] = {}
    """If the server needs only means of replies: their keys, and by what each mean is weighted."""

    pools_data: ClassVar[bool] = False
    """Whether one client with the data of all clients is trained instead of the clients."""

    trains_only_by_steps: ClassVar[bool] = False
    """Whether clients learn from their training data only through `local.run` with its default
    objective; example-level protections rely on it: see `known_to_train_only_by_steps`.
    """

    companion: Mapping[str, Any] | None = None
    """A second model of every client, as in the `model` table of a recipe; None if there is none.

    An empty table stands for the smallest of the clients' own models. Clients find it in
    `client.companion`, its parameters in `Params.of(client.model)` under the role `companion`, and
    the server its initial weights in `roster.accompanied(self.companion).shared("companion")`.
    """

    def start(self, roster: Roster) -> S:
        """Makes the server's state before the first round.

        Args:
            roster: What the server knows about its clients.
        """
        raise NotImplementedError

    def round(self, server: S, clients: Clients) -> S:
        """Runs one round.

        Args:
            server: The state of the server before the round.
            clients: The clients that take part; they can be called any number of times.

        Returns:
            The new state.
        """
        raise NotImplementedError

    def evaluate(self, server: S, clients: Clients) -> Replies:
        """Asks every client for the scores of its models.

        By default, calls `test` with the entry `model` of the server's state.

        Args:
            server: The state of the server.
            clients: All clients that are evaluated.

        Returns:
            For each client `{model: scores}`. Numbers beside the scores are recorded in the history
            under their names.
        """
        state: Any = server
        return clients.ask(self.test, model=state.model)

    @on_client
    def test(self, client: Any, *_: Any, **received: Any) -> Payload:
        """Scores the received `model` on a client; the name of the result is `reports`.

        An algorithm whose clients receive something else for evaluation defines its own `test`,
        with its own arguments.

        Args:
            client: The client that is evaluated.
            **received: What `evaluate` sends.

        Returns:
            The scores by the name of the model.
        """
        received["model"].load_into(client.model)
        return {self.reports: client.score()}

    def with_local(self, changes: Mapping[str, Any]) -> Algorithm[S]:
        """The same algorithm with changes to its local training, for clients that differ in it.

        Args:
            changes: New values of some fields of `local`.
        """
        if not changes:
            return self
        own: Any = self
        changed: Algorithm[S] = replace(own, local=replace(own.local, **changes))
        return changed

    @classmethod
    def needed_means(cls) -> Mapping[str, str | None]:
        """The means that the server needs: `averages`, if it is known to hold for this class.

        A subclass that defines another `round` does not inherit `averages`, because its `round` may
        need more: it has to declare `averages` itself.

        Returns:
            The keys of the replies and by what each mean is weighted; empty if the server may need
            single replies.
        """
        for base in cls.__mro__:
            if "averages" in vars(base):
                return base.__dict__["averages"]  # type: ignore[no-any-return]
            if "round" in vars(base):
                break
        return {}

    @classmethod
    def known_to_train_only_by_steps(cls) -> bool:
        """Whether `trains_only_by_steps` is known to hold for this class.

        A subclass that defines a method does not inherit it, because that method may use the
        training data in another way: it has to declare `trains_only_by_steps` itself.
        """
        for base in cls.__mro__:
            if "trains_only_by_steps" in vars(base):
                return bool(base.__dict__["trains_only_by_steps"])
            if any(hasattr(v, "__get__") and n[:2] != "__" for n, v in vars(base).items()):
                break
        return False

    @classmethod
    def state_type(cls) -> type:
        """The dataclass of the server's state: the S of `Algorithm[S]`.

        Raises:
            UsageError: If the class derives from `Algorithm` without a state.
        """
        for base in cls.__mro__:
            for parent in getattr(base, "__orig_bases__", ()):
                if typing.get_origin(parent) is Algorithm:
                    state: type = typing.get_args(parent)[0]
                    return state
        raise UsageError(f"{cls.__name__} must derive from Algorithm[its server state]")


__all__ = [
    "Algorithm",
    "Clients",
    "batchable",
    "is_batchable",
    "is_on_client",
    "on_client",
]
