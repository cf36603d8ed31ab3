from __future__ import annotations

import pytest
import torch
from tests.values.by_hand import (
    SIZES,
    Quadratic,
    assert_close,
    average,
    descend,
    distance,
    initial,
    play,
    quadratic_member,
    three_clients,
)

from consort.algorithms.fedavg import FedAvg
from consort.algorithms.fedprox import FedProx
from consort.core.wire import encode
from consort.federation.federation import Federation
from consort.training.local import LocalTraining


def test_the_first_step_from_the_anchor_is_that_of_fedavg(tmp_path):
    local = LocalTraining(lr=0.2)
    prox = play(FedProx(local, mu=3.0), three_clients(), tmp_path / "prox").server.model
    plain = play(FedAvg(local), three_clients(), tmp_path / "plain").server.model
    assert encode(prox) == encode(plain)


@pytest.mark.parametrize("mu", [0.01, 1.0])
def test_later_steps_are_pulled_back(mu, tmp_path):
    federation = three_clients()
    start = initial(federation)
    local = LocalTraining(epochs=6, lr=0.2)
    prox = play(FedProx(local, mu=mu), federation, tmp_path / "prox").server.model

    def pull(name, value):
        return mu * (value - start[name])

    trained = [
        descend(start, federation.data(c).train, 0.2, 6, extra=pull) for c in federation.client_ids
    ]
    assert_close(prox, average(trained, SIZES))
    plain = play(FedAvg(local), federation, tmp_path / "plain").server.model
    assert distance(prox, plain) > mu * 0.01


def test_the_pull_is_towards_the_model_of_this_round(tmp_path):
    federation = three_clients()
    model = initial(federation)
    local = LocalTraining(epochs=3, lr=0.2)
    found = play(FedProx(local, mu=0.5), federation, tmp_path, rounds=2).server.model
    for _ in range(2):
        anchor = model
        trained = [
            descend(
                anchor,
                federation.data(client).train,
                0.2,
                3,
                extra=lambda name, value: 0.5 * (value - anchor[name]),  # noqa: B023 (used at once)
            )
            for client in federation.client_ids
        ]
        model = average(trained, SIZES)
    assert_close(found, model)


def test_without_a_pull_it_is_fedavg(tmp_path):
    local = LocalTraining(epochs=3, lr=0.2)
    prox = play(FedProx(local, mu=0.0), three_clients(), tmp_path / "prox", rounds=2)
    plain = play(FedAvg(local), three_clients(), tmp_path / "plain", rounds=2)
    assert encode(prox.server) == encode(plain.server)


def test_on_a_quadratic_a_long_round_ends_at_the_proximal_point(tmp_path):
    member = quadratic_member(1, 30)
    federation = Federation({"a": member})
    anchor = federation.roster.model("a")["heads.fit.weight"][0].double()
    local = LocalTraining(epochs=400, lr=0.1)
    found = play(FedProx(local, mu=2.0), federation, tmp_path).server.model["heads.fit.weight"][0]
    expected = Quadratic.of(member).pulled(anchor, 2.0).best
    torch.testing.assert_close(found.double(), expected, atol=1e-5, rtol=0)
