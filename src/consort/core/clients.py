"""The clients of a round as the server sees them, and the methods that they answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, overload

from torch import Generator

from consort.core.contract import Contract, Declared
from consort.core.engine import Engine
from consort.core.messages import EVALUATION, Call, Each, Payload, Replies
from consort.core.randomness import generator_for
from consort.core.row import Row
from consort.errors import UsageError

NO_SERVER_DATA = (
    "this algorithm needs examples on the server: add [server.data] to the recipe, or server_data "
    "to the Federation"
)
Method = TypeVar("Method", bound=Callable[..., Payload])


@overload
def on_client(method: Method, /) -> Method: ...
@overload
def on_client(**answers: Declared) -> Callable[[Method], Method]: ...
def on_client(method: Any = None, /, **answers: Declared) -> Any:
    """Marks a method of an algorithm as one that runs on clients, and declares what it answers.

    Only methods with this mark can be called from the server. The server refuses an answer that
    differs from the declaration; `@on_client` without parentheses declares nothing, and then only
    what is wrong in any answer is refused. The method `test` declares the numbers beside its
    scores.

    Args:
        method: A method that receives a `Client` and, as keyword arguments, what the server sends.
            It returns the client's reply as a dict.
        **answers: What each entry of the reply is: see `consort.core.contract`.

    Returns:
        The same method.

    Examples:
        >>> from consort import Count, Model, Params, on_client
        >>> @on_client(model=Model(), examples=Count())
        ... def train(self, client, model):
        ...     return {"model": Params.of(client.model), "examples": client.examples}
        >>> train.on_client, sorted(train.answers)
        (True, ['examples', 'model'])
    """

    def marked(method: Method) -> Method:
        method.__dict__["on_client"] = True
        method.__dict__["answers"] = answers
        return method

    if method is None:
        return marked
    method.__dict__["on_client"] = True
    return method


def answers_of(method: object) -> Contract | None:
    """What a client `method` declares to answer; None if it declares nothing."""
    return getattr(method, "answers", None)


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
    """Whether clients are only evaluated, by `test`; then they keep no changes of their state."""
    asked: list[str] = field(default_factory=list)
    """The methods that were called in this round so far, in order."""
    notes: list[Row] = field(default_factory=list)
    """The values that the algorithm recorded in this round: see `note`."""
    bench: Callable[[str, int, int, int], Any] | None = None
    """Makes the server a client of its own: see `server_side`."""

    def ask(self, method: Callable[..., Payload], /, **payload: Any) -> Replies:
        """Calls a method on every client and waits for all replies.

        Args:
            method: A method of the algorithm that is marked with `on_client`.
            **payload: Its arguments; an `Each` holds a different value for each client.

        Returns:
            The replies; clients that failed are left out.

        Raises:
            UsageError: If `stream` would refuse the method.
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
            UsageError: If the method is not marked with `on_client`, or it is `test` while clients
                are trained, or another method while they are evaluated.
        """
        name = getattr(method, "__name__", str(method))
        if not is_on_client(method):
            raise UsageError(f"{name} is not a client method: mark it with @on_client")
        if self.evaluation != (name == EVALUATION):
            raise UsageError(
                f"`evaluate` can ask clients only for `{EVALUATION}`, and `round` for every other "
                f"method, but {'`evaluate`' if self.evaluation else '`round`'} asked for `{name}`"
            )
        step, turn = len(self.asked), self.asked.count(name)
        self.asked.append(name)
        calls = [
            Call(client, name, self.round, step, turn, _payload_for(client, payload))
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

        Raises:
            UsageError: If a value is not a number.
        """
        values = value if isinstance(value, Mapping) else {"": value}
        for number in values.values():
            if not isinstance(number, int | float):
                raise UsageError(f"the note {name!r} is a {type(number).__name__}, not a number")
        self.notes.extend(Row(self.round, name, v, c, part=part) for c, v in values.items())

    def server_side(self, like: str) -> Any:
        """The server as a client of its own, with the examples of `server.data`.

        Its model can be scored and trained like that of any client, and is as it was built: load
        what clients sent. There is one model for each architecture, so it is valid until the next
        call of this method or of `ask`.

        Args:
            like: The name of a client; the server's model and tasks are like those of this one.

        Returns:
            A `Client` whose training data are the server's; its targets may be missing.

        Raises:
            UsageError: If the server has no data.
        """
        if self.bench is None:
            raise UsageError(NO_SERVER_DATA)
        return self.bench(like, self.seed, self.round, self.rounds)

    @property
    def generator(self) -> Generator:
        """The server's random generator for this round."""
        return generator_for(self.seed, self.round, "server")


def _payload_for(client: str, payload: Payload) -> Payload:
    return {
        key: value[client] if isinstance(value, Each) else value for key, value in payload.items()
    }
