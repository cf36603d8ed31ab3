"""The base class of algorithms; what algorithm files need besides can be imported from here."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Generic, TypeVar

from consort.core.clients import Clients, batchable, is_batchable, is_on_client, on_client
from consort.core.messages import Payload, Replies
from consort.core.roster import Roster
from consort.errors import UsageError

S = TypeVar("S")


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

    @on_client()
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
