"""The shape of every algorithm: hyper-parameters, a server half, and a client half."""

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
    """Marks a method as one that clients answer. Only such methods can be called from outside."""
    method.__dict__["on_client"] = True
    return method


def batchable(method: Method) -> Method:
    """Marks a client method that a `Cohort` may run in the place of its clients.

    It may load parameters, run `self.local` with its own objective, and answer with parameters and
    `client.examples`; it may not use the client's state, data or scores.
    """
    method.__dict__["batchable"] = True
    return method


def is_batchable(method: object) -> bool:
    """Whether a method was marked with `batchable`."""
    return bool(getattr(method, "batchable", False))


def is_on_client(method: object) -> bool:
    """Whether a method was marked with `on_client`."""
    return bool(getattr(method, "on_client", False))


@dataclass(frozen=True)
class Clients:
    """The cohort of this round, as the server sees it."""

    ids: tuple[str, ...]
    round: int
    rounds: int
    seed: int
    engine: Engine
    population: int
    """How many clients there are in all, present or not."""
    evaluation: bool = False
    asked: list[str] = field(default_factory=list)
    """The methods asked for in this round so far, in order."""
    notes: list[Row] = field(default_factory=list)
    """What the algorithm wants to be remembered of this round, for its pictures."""

    def ask(self, method: Callable[..., Payload], /, **payload: Any) -> Replies:
        """Asks every client of the cohort and waits for all answers."""
        return Replies(dict(self.stream(method, **payload)))

    def stream(
        self, method: Callable[..., Payload], /, **payload: Any
    ) -> Iterator[tuple[str, Payload]]:
        """Asks like `ask`, but yields one answer at a time, in client order.

        For servers that cannot hold the models of all clients at once.
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
        """The part of this cohort with these ids."""
        chosen = set(ids)
        return replace(self, ids=tuple(client for client in self.ids if client in chosen))

    def note(self, name: str, value: float | Mapping[str, float], part: str = "") -> None:
        """Keeps a number of this round, or one per client, in the history."""
        values = value if isinstance(value, Mapping) else {"": value}
        self.notes.extend(Row(self.round, name, v, c, part=part) for c, v in values.items())

    @property
    def generator(self) -> Generator:
        """The server's randomness in this round."""
        return generator_for(self.seed, self.round, "server")


def _payload_for(client: str, payload: Payload) -> Payload:
    return {
        key: value[client] if isinstance(value, Each) else value for key, value in payload.items()
    }


class Algorithm(Generic[S]):
    """A federated algorithm as a value: a frozen dataclass of hyper-parameters.

    The server half is `start` and `round`; its state S is a dataclass of `Params`, tensors,
    numbers, lists and dicts that goes in and comes out. The client half is the methods
    marked `@on_client`.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    reports: ClassVar[str] = "global"
    """Which of the models in `evaluate`'s replies stands for the algorithm in tables."""

    private: ClassVar[tuple[str, ...]] = ()
    """The roles that never leave a client; a client refuses to send them."""

    averages: ClassVar[Mapping[str, str | None]] = {}
    """If the server needs only means of answers: their keys, and what each is weighted by."""

    pools_data: ClassVar[bool] = False
    """Whether one client with everybody's data takes the place of the clients."""

    trains_only_by_steps: ClassVar[bool] = False
    """Whether clients learn from their training data only through `local.run` with its default
    objective; example-level protections rely on it, see `known_to_train_only_by_steps`."""

    companion: Mapping[str, Any] | None = None
    """The model that every client has beside its own, as a recipe's table, if there is one.

    An empty table stands for the smallest of the clients' own. Clients find it in
    `client.companion`, its parameters in `Params.of(client.model)` under the role `companion`, and
    the server its initial weights in `roster.accompanied(self.companion).shared("companion")`.
    """

    def start(self, roster: Roster) -> S:
        """The server's state before the first round."""
        raise NotImplementedError

    def round(self, server: S, clients: Clients) -> S:
        """One round: asks clients as often as it likes, returns the new state."""
        raise NotImplementedError

    def evaluate(self, server: S, clients: Clients) -> Replies:
        """Asks every client for the scores of its models: `{model: scores}` per client.

        Numbers beside the scores are kept in the history under their names. By default, `test` is
        asked with the entry `model` of the server's state.
        """
        state: Any = server
        return clients.ask(self.test, model=state.model)

    @on_client
    def test(self, client: Any, *_: Any, **received: Any) -> Payload:
        """By default, the scores of `model` as received, under the name in `reports`.

        An algorithm whose clients receive something else to be tested has its own `test`, with
        its own arguments.
        """
        received["model"].load_into(client.model)
        return {self.reports: client.score()}

    def with_local(self, changes: Mapping[str, Any]) -> Algorithm[S]:
        """The same algorithm with other values of some keys of `local`, as some clients have it."""
        if not changes:
            return self
        own: Any = self
        changed: Algorithm[S] = replace(own, local=replace(own.local, **changes))
        return changed

    @classmethod
    def needed_means(cls) -> Mapping[str, str | None]:
        """What it `averages`; nothing is known of a class with another `round` that is silent."""
        for base in cls.__mro__:
            if "averages" in vars(base):
                return base.__dict__["averages"]  # type: ignore[no-any-return]
            if "round" in vars(base):
                break
        return {}

    @classmethod
    def known_to_train_only_by_steps(cls) -> bool:
        """Whether `trains_only_by_steps` is declared for this very class.

        A subclass that defines a method inherits no such claim, because that method may use the
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
        """The dataclass of the server's state, from the parameter of `Algorithm[S]`."""
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
