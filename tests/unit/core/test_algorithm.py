"""What a class of algorithms says about itself, and what its subclasses inherit of that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest
from tests.helpers import tiny_federation

from consort.algorithms.centralised import Centralised
from consort.algorithms.fedala import FedALA
from consort.algorithms.fedavg import FedAvg
from consort.algorithms.fedper import FedPer
from consort.algorithms.qfedavg import QFedAvg
from consort.algorithms.registry import find_algorithm
from consort.core.algorithm import Algorithm, Clients, on_client
from consort.core.params import Params
from consort.engines.embedded import Embedded
from consort.engines.host import ClientHost
from consort.engines.states import StateStore

BY_STEPS = (
    *("cfl", "ditto", "fedamp", "fedavg", "fedavg_ft", "fedbabu", "fedmgda"),
    *("fedmtl", "fedper", "fedprox", "fedrep", "local_only", "scaffold"),
)


@pytest.mark.parametrize("name", BY_STEPS)
def test_algorithms_that_declare_it_are_known_to_train_only_by_steps(name):
    assert find_algorithm(name).known_to_train_only_by_steps()


@pytest.mark.parametrize("kind", [Algorithm, Centralised, FedALA, QFedAvg])
def test_others_are_not_known_to_train_only_by_steps(kind):
    assert not kind.known_to_train_only_by_steps()


class Renamed(FedAvg):
    """Only other values of what is there."""

    reports: ClassVar[str] = "other"
    extra: int = 3


class OtherClient(FedAvg):
    """Another client method."""

    @on_client
    def train(self, client, model):
        return super().train(client, model)


class OtherHelper(FedPer):
    """Another method that `train` calls, though it is none of a client."""

    def fit(self, client):
        super().fit(client)


class OtherRound(FedAvg):
    """Another round."""

    def round(self, server, clients):
        return super().round(server, clients)


class Mixin:
    """Methods that come before those of the algorithm."""

    @property
    def local(self):
        return None


class Mixed(Mixin, FedAvg):
    """Nothing of its own."""


class Sure(OtherClient):
    """Has looked at the methods it inherits."""

    trains_only_by_steps: ClassVar[bool] = True


@pytest.mark.parametrize(
    ("kind", "known"),
    [
        (Renamed, True),
        (OtherClient, False),
        (type("Child", (OtherClient,), {}), False),
        (OtherHelper, False),
        (OtherRound, False),
        (Mixed, False),
        (Sure, True),
        (type("Child", (Sure,), {"train": OtherClient.train}), False),
    ],
)
def test_a_class_with_methods_of_its_own_inherits_no_such_claim(kind, known):
    assert kind.known_to_train_only_by_steps() == known


@dataclass(frozen=True)
class OneModel:
    """A server's state with a model."""

    model: Params


class Plain(Algorithm[OneModel]):
    """An algorithm with no evaluation of its own."""

    reports: ClassVar[str] = "personal"


def test_by_default_the_model_of_the_server_is_tested_as_received():
    federation = tiny_federation(2)
    engine = Embedded(ClientHost(federation, Plain(), 0, 1, StateStore()))
    clients = Clients(federation.client_ids, 1, 1, 0, engine, 2, evaluation=True)
    start = federation.roster.shared()
    found = [Plain().evaluate(OneModel(model), clients) for model in (start, start * 0.0)]
    assert [set(scores) for scores in found[0].values()] == [{"personal"}] * 2
    assert dict(found[0]) != dict(found[1])
    plain = Embedded(ClientHost(federation, FedAvg(), 0, 1, StateStore()))
    asked = Clients(federation.client_ids, 1, 1, 0, plain, 2, evaluation=True)
    expected = FedAvg().evaluate(OneModel(start), asked)
    assert found[0].each("personal") == expected.each("global")
