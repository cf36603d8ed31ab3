"""Local training before the test, which a run can ask of every algorithm."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from tests.unit.cli.command import consort, write_recipe
from tests.values.by_hand import (
    assert_scores,
    descend,
    initial,
    loss,
    play,
    scores,
    three_clients,
)

from consort.algorithms.ditto import Ditto
from consort.algorithms.fedavg import FedAvg, Server
from consort.algorithms.fedavg_ft import FedAvgFT
from consort.algorithms.fedbabu import FedBABU
from consort.algorithms.local_only import LocalOnly
from consort.core.algorithm import Algorithm, Clients, on_client
from consort.core.messages import Payload, Replies
from consort.core.roster import Roster
from consort.core.wire import encode
from consort.training.client import Client
from consort.training.local import LocalTraining

LOCAL = LocalTraining(epochs=2, lr=0.2)


def rows_of(outcome, model):
    return [row for row in outcome.rows if row.model == model]


@pytest.mark.parametrize("epochs", [1, 3])
@pytest.mark.parametrize("schedule", [{}, {"participation": 0.5}, {"evaluate_every": 2}], ids=str)
def test_tuned_fedavg_is_fedavg_ft_bit_for_bit(epochs, schedule, tmp_path):
    federation, local = three_clients(), LocalTraining(lr=0.2, batch=8)
    asked = play(
        FedAvg(local), federation, tmp_path / "run", rounds=3, tuning_epochs=epochs, **schedule
    )
    own = play(
        FedAvgFT(local, tuning_epochs=epochs), federation, tmp_path / "own", rounds=3, **schedule
    )
    assert rows_of(asked, "tuned")
    assert asked.rows == own.rows
    assert encode(asked.server) == encode(own.server)


def global_model(outcome, client):
    return dict(outcome.server.model)


def personal_model(outcome, client):
    return dict(outcome.states[client]["personal"])


def own_model(outcome, client):
    return dict(outcome.states[client]["model"])


@pytest.mark.parametrize(
    ("algorithm", "tested"),
    [(FedAvg(LOCAL), global_model), (Ditto(LOCAL), personal_model), (LocalOnly(LOCAL), own_model)],
    ids=lambda part: type(part).__name__,
)
def test_the_model_that_was_scored_last_is_tuned_so_many_epochs(algorithm, tested, tmp_path):
    federation = three_clients()
    outcome = play(algorithm, federation, tmp_path, rounds=2, tuning_epochs=5)
    tuned = {
        client: descend(tested(outcome, client), federation.data(client).train, 0.2, 5)
        for client in federation.client_ids
    }
    assert_scores(scores(outcome, "tuned", 2), federation, tuned)


@pytest.mark.parametrize(("lr", "epochs"), [(0.2, {1, 2, 3}), (30.0, {0})])
def test_the_best_epoch_is_the_best_on_validation_data(lr, epochs, tmp_path):
    """At a rate that is far too large, the model before fine-tuning is the best."""
    federation = three_clients()
    tuning = {"tuning_epochs": 3, "tuning_choice": "best"}
    outcome = play(StillTuned(local=LocalTraining(lr=lr)), federation, tmp_path, **tuning)
    chosen, found = {}, set()
    for client in federation.client_ids:
        data = federation.data(client)
        tuned = [descend(initial(federation), data.train, lr, epoch) for epoch in range(4)]
        losses = [float(loss(model, data.validation)) for model in tuned]
        found.add(losses.index(min(losses)))
        chosen[client] = tuned[losses.index(min(losses))]
    assert found <= epochs
    assert_scores(scores(outcome, "tuned", 1), federation, chosen)


def test_epochs_of_tuning_are_epochs_even_where_rounds_have_so_many_steps(tmp_path):
    federation = three_clients()
    local = LocalTraining(steps=7, lr=0.2)
    outcome = play(FedAvg(local), federation, tmp_path, tuning_epochs=2)
    tuned = {
        client: descend(dict(outcome.server.model), federation.data(client).train, 0.2, 2)
        for client in federation.client_ids
    }
    assert_scores(scores(outcome, "tuned", 1), federation, tuned)


@pytest.mark.parametrize("kind", [FedAvgFT, FedBABU])
def test_who_tunes_anyway_does_it_in_the_own_way(kind, tmp_path):
    federation, algorithm = three_clients(), kind(LOCAL, tuning_epochs=3)
    asked = play(algorithm, federation, tmp_path / "asked", tuning_epochs=1)
    plain = play(algorithm, federation, tmp_path / "plain")
    assert rows_of(asked, "tuned")
    assert asked.rows == plain.rows


def test_without_epochs_nothing_is_tuned(tmp_path):
    assert not rows_of(play(FedAvg(LOCAL), three_clients(), tmp_path), "tuned")


@dataclass(frozen=True)
class Standstill(Algorithm[Server]):
    """Has no local training; its clients are tested with the initial model, or only counted."""

    scored: bool = True

    def start(self, roster: Roster) -> Server:
        return Server(roster.shared())

    def round(self, server: Server, clients: Clients) -> Server:
        return server

    def evaluate(self, server: Server, clients: Clients) -> Replies:
        return clients.ask(self.test)

    @on_client
    def test(self, client: Client) -> Payload:
        return {"global": client.score()} if self.scored else {"examples": client.examples}


@dataclass(frozen=True)
class StillTuned(Standstill):
    """The same, with local training that only fine-tuning uses."""

    local: LocalTraining = LocalTraining()


def test_an_algorithm_without_local_training_is_tuned_with_the_usual_one(tmp_path):
    federation = three_clients()
    outcome = play(Standstill(), federation, tmp_path, tuning_epochs=4)
    usual = LocalTraining()
    tuned = {
        client: descend(dict(outcome.server.model), federation.data(client).train, usual.lr, 4)
        for client in federation.client_ids
    }
    assert_scores(scores(outcome, "tuned", 1), federation, tuned)


def test_clients_that_were_not_scored_are_not_tuned(tmp_path):
    outcome = play(Standstill(scored=False), three_clients(), tmp_path, tuning_epochs=4)
    assert [(row.metric, row.value) for row in outcome.rows] == [
        ("examples", 12), ("examples", 20), ("examples", 28),
    ]  # fmt: skip


@pytest.mark.parametrize("epochs", ["-1", "0.5", "true"])
def test_epochs_that_cannot_be_are_refused(epochs, tmp_path):
    recipe = write_recipe(tmp_path, ("rounds = 2", f"rounds = 2\ntuning_epochs = {epochs}"))
    outcome = consort("run", recipe, "--quiet")
    assert outcome.code == 2
    assert "key run.tuning_epochs: it should be" in outcome.error
