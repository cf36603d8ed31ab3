"""Algorithms whose server takes the step of an optimiser in the place of the mean."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, make_dataclass
from functools import cache
from typing import Any, ClassVar

from consort.aggregation.server_optimizer import Memory, ServerOptimizer
from consort.core.algorithm import Algorithm, Clients, batchable, on_client
from consort.core.contract import Count, Model
from consort.core.messages import Payload
from consort.core.params import Params
from consort.core.roster import Roster
from consort.errors import UsageError
from consort.training.client import Client
from consort.training.local import LocalTraining


@dataclass(frozen=True)
class Server:
    """The global model x, and what the optimiser remembers."""

    model: Params
    memory: Memory


@dataclass(frozen=True)
class FedOpt(Algorithm[Server]):
    """FedAvg with an optimiser of the server: Algorithm 1 of Reddi et al."""

    averages: ClassVar = {"model": "examples"}
    trains_only_by_steps: ClassVar[bool] = True

    local: LocalTraining = LocalTraining()

    @property
    def optimizer(self) -> ServerOptimizer:
        """The optimiser, with the options of the algorithm."""
        raise NotImplementedError

    def start(self, roster: Roster) -> Server:
        """The common initial model; there is nothing to remember."""
        return Server(roster.shared(), {})

    def round(self, server: Server, clients: Clients) -> Server:
        """x moves along Delta = sum over k of n_k / n (x_k - x), by the rule of the optimiser."""
        replies = clients.ask(self.train, model=server.model)
        mean = replies.mean("model", weight="examples")
        return Server(*self.optimizer.step(server.model, mean, server.memory))

    @batchable
    @on_client(model=Model(), examples=Count())
    def train(self, client: Client, model: Params) -> Payload:
        """Local epochs from the global model."""
        model.load_into(client.model)
        self.local.run(client)
        return {"model": Params.of(client.model), "examples": client.examples}


class _Stepping(Algorithm[Any]):
    """What `with_server_optimizer` puts before an algorithm."""

    state: ClassVar[Any]
    """The state of the algorithm's server, with an entry `memory`."""
    entries: ClassVar[tuple[str, ...]]
    """The entries of the state that are moved by the optimiser."""
    server_optimizer: ServerOptimizer

    @classmethod
    def state_type(cls) -> type:
        """The state of the algorithm's server, with an entry `memory`."""
        return cls.state  # type: ignore[no-any-return]

    def start(self, roster: Roster) -> Any:
        """The state of the algorithm; there is nothing to remember."""
        return self.state(**vars(super().start(roster)), memory={})

    def round(self, server: Any, clients: Clients) -> Any:
        """The round of the algorithm; what it averaged is then moved by the optimiser."""
        found, memory = dict(vars(super().round(server, clients))), {}
        for entry in self.entries:
            before, known = getattr(server, entry), server.memory.get(entry, {})
            step = self.server_optimizer.step(before, found[entry], known)
            found[entry], memory[entry] = step
        return self.state(**found | {"memory": memory})


def with_server_optimizer(kind: Any) -> type[Algorithm[Any]]:
    """An averaging algorithm with an optimiser of the server, the option `server_optimizer`.

    Whatever the algorithm makes of the answers is the mean to which the optimiser steps. A recipe
    does this for every algorithm that has a table `server_optimizer`.

    Args:
        kind: The algorithm. Its server must have entries that are means of answers: those of
            `Algorithm.averages` that are also entries of the server's state.

    Returns:
        The class of the same algorithm with that option.

    Raises:
        UsageError: If the server has no such entry.

    Examples:
        >>> from consort import ServerOptimizer, with_server_optimizer
        >>> from consort.algorithms.fedprox import FedProx
        >>> adaptive = with_server_optimizer(FedProx)
        >>> adaptive(mu=0.1, server_optimizer=ServerOptimizer("adam", lr=0.01)).mu
        0.1
    """
    return _made(kind)


@cache
def _made(kind: Any) -> type[Algorithm[Any]]:
    state = kind.state_type()
    entries = tuple(f.name for f in fields(state) if f.name in kind.needed_means())
    if not entries:
        raise UsageError(
            f"{kind.__name__} has no server_optimizer: its server does more than to average models"
        )
    promises = {
        "averages": kind.needed_means(),
        "trains_only_by_steps": kind.known_to_train_only_by_steps(),
        "entries": entries,
        "state": make_dataclass(
            state.__name__, [("memory", dict[str, Memory])], bases=(state,), frozen=True
        ),
    }
    option = ("server_optimizer", ServerOptimizer, field(default_factory=ServerOptimizer))
    optimised: Any = make_dataclass(
        kind.__name__, [option], bases=(_Stepping, kind), namespace=promises, frozen=True
    )
    optimised.__module__, optimised.__doc__ = kind.__module__, kind.__doc__
    return optimised  # type: ignore[no-any-return]
