from __future__ import annotations

import pytest
import torch
from tests.helpers import tiny_federation
from tests.values.by_hand import (
    SIZES,
    Quadratic,
    assert_close,
    assert_scores,
    average,
    descend,
    distance,
    loss,
    play,
    quadratic_member,
    scores,
    three_clients,
)

from consort.algorithms.fedavg import FedAvg
from consort.algorithms.ifca import IFCA, Server
from consort.core.algorithm import Clients
from consort.core.params import Params
from consort.core.plugins import Registered, entries
from consort.core.wire import encode
from consort.data.examples import Splits
from consort.engines.embedded import Embedded
from consort.engines.host import ClientHost
from consort.engines.scripted import Scripted
from consort.engines.states import StateStore
from consort.errors import UsageError
from consort.federation.federation import Federation
from consort.federation.participation import cohort
from consort.training.client import Client
from consort.training.local import LocalTraining

LOCAL = LocalTraining(epochs=3, lr=0.2)


def best_of(models, examples):
    losses = [float(loss(model, examples)) for model in models]
    return losses.index(min(losses))


def one_round(algorithm, federation, server):
    """The state after a round of all clients that starts from a state of our own."""
    ids = federation.client_ids
    engine = Embedded(ClientHost(federation, algorithm, 0, 1, StateStore()))
    return algorithm.round(server, Clients(ids, 1, 1, 0, engine, len(ids)))


@pytest.mark.parametrize("share", [1.0, 0.7, 0.3])
@pytest.mark.parametrize("clusters", [2, 3])
def test_rounds_average_what_was_made_of_the_best_model(clusters, share, tmp_path):
    federation = three_clients()
    algorithm = IFCA(LOCAL, clusters=clusters)
    outcome = play(algorithm, federation, tmp_path, rounds=3, participation=share)
    models = [dict(model) for model in federation.roster.starts(clusters)]
    sizes = dict(zip(federation.client_ids, SIZES, strict=True))
    for round_ in (1, 2, 3):
        present = cohort(federation.client_ids, share, 0, round_)
        chosen = {client: best_of(models, federation.data(client).train) for client in present}
        trained = {
            client: descend(models[best], federation.data(client).train, 0.2, 3)
            for client, best in chosen.items()
        }
        for cluster in range(clusters):
            members = [client for client in present if chosen[client] == cluster]
            if members:
                weights = [sizes[client] for client in members]
                models[cluster] = average([trained[client] for client in members], weights)
        tested = {
            client: models[best_of(models, federation.data(client).train)]
            for client in federation.client_ids
        }
        assert_scores(scores(outcome, "personal", round_), federation, tested)
    for found, expected in zip(outcome.server.models, models, strict=True):
        assert_close(found, expected)


def test_the_first_models_are_drawn_independently():
    models = IFCA(clusters=3).start(three_clients().roster).models
    weights = ["encoder.layers.0.weight", "heads.classify.weight"]
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert all(float((models[one][n] - models[other][n]).norm()) > 0.1 for n in weights)
    assert models[0].equals(three_clients().roster.shared())


def test_of_equal_models_everybody_takes_the_first_and_the_others_stay():
    federation = three_clients()
    start = federation.roster.shared()
    server = one_round(IFCA(LOCAL, clusters=3), federation, Server([start] * 3))
    alone = FedAvg(LOCAL)
    expected = one_round(alone, federation, alone.start(federation.roster))
    assert encode(server.models[0]) == encode(expected.model)
    assert all(model is start for model in server.models[1:])


def test_a_model_without_a_finite_loss_is_never_chosen():
    federation = three_clients()
    start = federation.roster.shared()
    hopeless = start * 1e25
    server = one_round(IFCA(LOCAL, clusters=2), federation, Server([hopeless, start]))
    assert server.models[0] is hopeless
    assert distance(server.models[1], start) > 0.01


@pytest.mark.usefixtures("normed_encoder")
@pytest.mark.parametrize(
    ("model", "batchnorm"),
    [("rough", "average"), ("rough", "local"), ("normed", "recompute")],
)
def test_with_one_cluster_it_is_fedavg_bit_for_bit(model, batchnorm, tmp_path, monkeypatch):
    """Choosing leaves no trace: neither in BatchNorm's statistics nor in what dropout draws."""
    monkeypatch.setitem(entries("models"), "rough", Registered("tests.contract.helpers:Rough"))
    federation = tiny_federation(3, model={"name": model}, batchnorm=batchnorm)
    local = LocalTraining(lr=0.1, batch=16)
    ifca = play(IFCA(local, clusters=1), federation, tmp_path / "ifca", rounds=3)
    plain = play(FedAvg(local), federation, tmp_path / "plain", rounds=3)
    assert encode(ifca.server.models[0]) == encode(plain.server.model)
    assert scores(ifca, "personal", 3) == scores(plain, "global", 3)


@pytest.mark.usefixtures("normed_encoder")
def test_models_are_chosen_as_they_are_tested():
    """The same weights with statistics that do not fit give a greater loss, except in training."""
    federation = tiny_federation(2, model={"name": "normed"})
    local = LocalTraining(epochs=5, lr=0.1)
    fitting = one_round(FedAvg(local), federation, FedAvg().start(federation.roster)).model
    odd = fitting | (fitting.only("buffers") * 30.0)
    server = one_round(IFCA(local), federation, Server([odd, fitting]))
    assert server.models[0] is odd
    assert distance(server.models[1], fitting) > 1e-3


@pytest.mark.usefixtures("normed_encoder")
@pytest.mark.parametrize("batchnorm", ["average", "local", "recompute"])
@pytest.mark.parametrize("name", ["c0", "c1", "c2"])
def test_the_model_chosen_would_do_best_in_a_test_on_the_training_data(name, batchnorm):
    federation = tiny_federation(3, model={"name": "normed"}, batchnorm=batchnorm)
    train = federation.data(name).train
    client = Client(
        id=name,
        model=federation.blueprint(name).fresh(),
        tasks=dict(federation.members[name].tasks),
        data=Splits(train, train, train),
        state={},
        generator=torch.Generator(),
        round=1,
        rounds=1,
    )
    models = [federation.roster.draw(name, number) for number in range(1, 6)]
    losses = []
    for model in models:
        model.load_into(client.model)
        losses.append(client.score()["test"]["tasks"]["classify"]["loss"])
    best = losses.index(min(losses))
    tested = IFCA().test(client, models)
    assert tested["chosen_model"] == best
    assert tested["personal"]["test"]["tasks"]["classify"]["loss"] == min(losses)
    assert IFCA().train(client, models)["cluster"] == best


def test_weights_of_tasks_count_in_the_choice():
    federation = tiny_federation(2, tasks={"colour": 3, "shape": 3})

    def good_at(task):
        local = LocalTraining(
            epochs=30, lr=0.3, task_weights={"colour": 0.0, "shape": 0.0, task: 1}
        )
        return one_round(FedAvg(local), federation, FedAvg().start(federation.roster)).model

    models = [good_at("colour"), good_at("shape")]
    for best, task in enumerate(("colour", "shape")):
        local = LocalTraining(task_weights={"colour": 0.1, "shape": 0.1, task: 1.0})
        server = one_round(IFCA(local), federation, Server(models))
        assert [new is old for new, old in zip(server.models, models, strict=True)] == [
            number != best for number in range(2)
        ]


def test_two_groups_of_clients_find_their_two_models(tmp_path):
    members = {
        f"{kind}{n}": quadratic_member(seed, 40)
        for seed, kind in ((3, "a"), (4, "b"))
        for n in range(3)
    }
    algorithm = IFCA(LocalTraining(epochs=10, lr=0.2, batch=40), clusters=2)
    outcome = play(algorithm, Federation(members), tmp_path, rounds=20, evaluate_every=0)
    found = [model["heads.fit.weight"][0].double() for model in outcome.server.models]
    best = [Quadratic.of(members[f"{kind}0"]).best for kind in "ab"]
    assert float((best[0] - best[1]).norm()) > 0.5
    order = sorted(range(2), key=lambda k: float((found[k] - best[0]).norm()))
    for k, expected in zip(order, best, strict=True):
        torch.testing.assert_close(found[k], expected, atol=1e-4, rtol=0)


def test_a_client_without_examples_changes_no_model():
    start = Params({"encoder.w": torch.tensor([1.0])})
    other = Params({"encoder.w": torch.tensor([5.0])})
    answers = {
        "a": {"model": other, "cluster": 0, "examples": 0},
        "b": {"model": other, "cluster": 1, "examples": 0},
        "c": {"model": other * 2, "cluster": 1, "examples": 3},
    }
    engine = Scripted(lambda call: answers[call.client])
    server = IFCA().round(Server([start, start]), Clients(("a", "b", "c"), 1, 1, 0, engine, 3))
    assert [float(model["encoder.w"]) for model in server.models] == [1.0, 10.0]


def test_more_clusters_than_clients_are_refused():
    message = "ifca cannot form 4 clusters among 3 client.s.: set clusters to at most 3"
    with pytest.raises(UsageError, match=message):
        IFCA(clusters=4).start(three_clients().roster)
    IFCA(clusters=3).start(three_clients().roster)
