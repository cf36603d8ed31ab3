from __future__ import annotations

import pytest
import torch
from tests.helpers import tiny_federation
from tests.values.by_hand import (
    Quadratic,
    assert_close,
    assert_scores,
    descend,
    distance,
    initial,
    play,
    quadratic_member,
    scores,
    three_clients,
)

from consort.algorithms.ditto import Ditto
from consort.algorithms.fedavg import FedAvg
from consort.algorithms.local_only import LocalOnly
from consort.core.wire import encode
from consort.federation.federation import Federation
from consort.training.local import LocalTraining

LOCAL = LocalTraining(epochs=2, lr=0.2)


def personal(outcome, client):
    return outcome.states[client]["personal"]


@pytest.mark.parametrize("strength", [0.0, 0.1, 2.0])
def test_the_personal_model_is_pulled_to_what_was_received(strength, tmp_path):
    federation = three_clients()
    algorithm = Ditto(LOCAL, strength=strength, personal_epochs=3)
    received = [
        initial(federation),
        dict(play(FedAvg(LOCAL), federation, tmp_path / "plain").server.model),
    ]
    outcome = play(algorithm, federation, tmp_path / "ditto", rounds=2)
    own = dict.fromkeys(federation.client_ids, received[0])
    for round_, model in enumerate(received, 1):

        def pull(name, value, model=model):
            return strength * (value - model[name])

        for client in own:
            own[client] = descend(own[client], federation.data(client).train, 0.2, 3, extra=pull)
        assert_scores(scores(outcome, "personal", round_), federation, own)
    for client, model in own.items():
        assert_close(personal(outcome, client), model)


def test_without_strength_every_client_learns_alone(tmp_path):
    federation = three_clients()
    outcome = play(Ditto(LOCAL, strength=0.0), federation, tmp_path, rounds=5)
    for client in federation.client_ids:
        alone = descend(initial(federation), federation.data(client).train, 0.2, 5)
        assert_close(personal(outcome, client), alone)


def test_the_pull_moves_the_personal_model(tmp_path):
    federation = three_clients()
    free = play(Ditto(LOCAL, strength=0.0), federation, tmp_path / "free", rounds=3)
    held = play(Ditto(LOCAL, strength=0.5), federation, tmp_path / "held", rounds=3)
    for client in federation.client_ids:
        assert distance(personal(free, client), personal(held, client)) > 1e-3


def test_great_strength_holds_the_personal_model_at_the_global_one(tmp_path):
    federation = three_clients()
    local = LocalTraining(epochs=2, lr=0.01)
    algorithm = Ditto(local, strength=90.0, personal_epochs=30)
    before = play(algorithm, federation, tmp_path / "before", rounds=2).server.model
    outcome = play(algorithm, federation, tmp_path / "after", rounds=3)
    for client in federation.client_ids:
        assert distance(personal(outcome, client), before) < 0.02


def test_the_global_model_is_that_of_fedavg_bit_for_bit(tmp_path):
    federation = three_clients()
    ditto = play(Ditto(LOCAL, strength=0.7), federation, tmp_path / "ditto", rounds=3)
    plain = play(FedAvg(LOCAL), federation, tmp_path / "plain", rounds=3)
    assert encode(ditto.server) == encode(plain.server)


def test_on_a_quadratic_a_long_round_ends_between_own_and_global_optimum(tmp_path):
    members = {"a": quadratic_member(1, 30), "b": quadratic_member(2, 30)}
    federation = Federation(members)
    received = federation.roster.model("a")["heads.fit.weight"][0].double()
    algorithm = Ditto(LocalTraining(lr=0.1), strength=0.5, personal_epochs=400)
    outcome = play(algorithm, federation, tmp_path)
    for client, member in members.items():
        expected = Quadratic.of(member).pulled(received, 0.5).best
        found = personal(outcome, client)["heads.fit.weight"][0].double()
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def test_a_client_that_was_absent_keeps_its_personal_model(tmp_path):
    federation = three_clients()
    algorithm = Ditto(LOCAL)
    rounds = [
        play(algorithm, federation, tmp_path / str(count), rounds=count, participation=0.3)
        for count in (1, 2)
    ]
    (trained,) = [client for client, state in rounds[0].states.items() if state]
    second = {client for client, state in rounds[1].states.items() if state}
    assert second > {trained}, "choose rounds in which different clients take part"
    assert encode(personal(rounds[1], trained)) == encode(personal(rounds[0], trained))


@pytest.mark.usefixtures("normed_encoder")
def test_each_of_the_two_models_has_local_statistics_of_its_own(tmp_path):
    whole = LocalTraining(lr=0.2, batch=1000)  # in one batch, so that the order does not matter

    def played(algorithm):
        federation = tiny_federation(3, model={"name": "normed"}, batchnorm="local")
        return play(algorithm, federation, tmp_path / algorithm.__class__.__name__, rounds=3).states

    both, shared, alone = map(played, (Ditto(whole, strength=0.0), FedAvg(whole), LocalOnly(whole)))
    for client, state in both.items():
        assert encode(state["batchnorm statistics"]) == encode(
            shared[client]["batchnorm statistics"]
        )
        own = alone[client]["batchnorm statistics"]
        for name, seen in state["personal"].only("buffers").items():
            torch.testing.assert_close(seen, own[name])
            assert not torch.equal(seen, state["batchnorm statistics"][name])
