"""Mistakes that can be read in an algorithm are named with their line, before anybody is asked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.helpers import tiny_federation

from consort.algorithms.fedavg import FedAvg, Server
from consort.algorithms.registry import algorithm_places, find_algorithm
from consort.core.asking import check_text
from consort.core.clients import on_client
from consort.core.contract import Count, Model
from consort.core.params import Params
from consort.errors import UsageError
from consort.run.run import Run


@dataclass(frozen=True)
class Misspelt(FedAvg):
    def round(self, server, clients):
        replies = clients.ask(self.train, model=server.model)
        return Server(replies.mean("modle", weight="examples"))


@dataclass(frozen=True)
class WrongWeight(FedAvg):
    def round(self, server, clients):
        return Server(clients.ask(self.train, model=server.model).mean("model", weight="example"))


@dataclass(frozen=True)
class Weights(FedAvg):
    @on_client(model=Model(), examples=Count())
    def train(self, client, model):
        model.load_into(client.model)
        return {"model": client.model.state_dict(), "examples": client.examples}


@dataclass(frozen=True)
class Undeclared(FedAvg):
    """Whose answers are known only when they come."""

    def round(self, server, clients):
        return Server(clients.ask(self.train, model=server.model).mean("weights", weight="count"))

    @on_client
    def train(self, client, model):
        return {"weights": Params.of(client.model), "count": client.examples}


def line_of(kind: type, text: str) -> int:
    lines = Path(__file__).read_text().splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith(f"class {kind.__name__}("))
    return next(n for n, line in enumerate(lines, 1) if n > start and text in line)


@pytest.mark.parametrize(("kind", "text", "message"), [
    (Misspelt, ".mean(",
     "no client answers 'modle': did you mean 'model'? (there are: examples, model)"),
    (WrongWeight, ".mean(",
     "no client answers 'example': did you mean 'examples'? (there are: examples, model)"),
    (Weights, "state_dict",
     "a client cannot answer with a state_dict, of which there is no mean: let it answer "
     "Params.of(client.model)"),
])  # fmt: skip
def test_a_mistake_is_named_before_the_first_round(kind, text, message):
    with pytest.raises(UsageError) as caught:
        Run(tiny_federation(2), kind())
    assert str(caught.value) == f"test_asking.py, line {line_of(kind, text)}: {message}"


def test_what_is_not_declared_is_not_judged():
    check_text(Undeclared)
    Run(tiny_federation(2), Undeclared())


@pytest.mark.parametrize("name", algorithm_places())
def test_all_algorithms_pass(name):
    check_text(find_algorithm(name))


def test_a_class_without_a_text_passes():
    space = {"FedAvg": FedAvg}
    exec("class Made(FedAvg):\n    def round(self, s, c):\n        c.mean('x')\n", space)
    check_text(space["Made"])
