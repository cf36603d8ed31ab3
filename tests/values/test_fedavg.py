from __future__ import annotations

import pytest
import torch
from tests.helpers import tiny_federation
from tests.values.by_hand import (
    SIZES,
    Quadratic,
    assert_close,
    average,
    descend,
    initial,
    play,
    quadratic_member,
    three_clients,
)

from consort.algorithms.fedavg import FedAvg
from consort.federation.federation import Federation
from consort.training.local import LocalTraining

FIT = "heads.fit.weight"


@pytest.mark.parametrize("epochs", [1, 5])
def test_a_round_is_the_mean_of_local_descents_by_examples(epochs, tmp_path):
    federation = three_clients()
    start = initial(federation)
    local = LocalTraining(epochs=epochs, lr=0.2)
    found = play(FedAvg(local), federation, tmp_path).server.model
    trained = [descend(start, federation.data(c).train, 0.2, epochs) for c in federation.client_ids]
    assert_close(found, average(trained, SIZES))


def test_the_second_round_starts_from_the_mean_of_the_first(tmp_path):
    federation = three_clients()
    model = initial(federation)
    found = play(FedAvg(LocalTraining(epochs=2, lr=0.2)), federation, tmp_path, rounds=2)
    for _ in range(2):
        trained = [descend(model, federation.data(c).train, 0.2, 2) for c in federation.client_ids]
        model = average(trained, SIZES)
    assert_close(found.server.model, model)


def test_one_step_of_softmax_regression_is_the_textbook_formula(tmp_path):
    """The gradient of mean cross entropy with respect to the logits is (softmax - one hot) / n."""
    federation = tiny_federation(3, model={"name": "mlp", "hidden": []})
    weight = federation.roster.model("c0")["heads.classify.weight"]
    bias = federation.roster.model("c0")["heads.classify.bias"]
    weight_mean, bias_mean, total = torch.zeros_like(weight), torch.zeros_like(bias), 30 + 31 + 32
    for client in federation.client_ids:
        train = federation.data(client).train
        logits = train.inputs @ weight.T + bias
        error = (logits.softmax(1) - torch.eye(3)[train.targets["classify"]]) / len(train)
        weight_mean += len(train) / total * (weight - 0.5 * error.T @ train.inputs)
        bias_mean += len(train) / total * (bias - 0.5 * error.sum(0))
    found = play(FedAvg(LocalTraining(lr=0.5)), federation, tmp_path).server.model
    expected = {"heads.classify.weight": weight_mean, "heads.classify.bias": bias_mean}
    assert_close(found, expected)


def test_on_quadratics_rounds_follow_the_closed_form(tmp_path):
    sizes = {"a": 10, "b": 30}
    members = {name: quadratic_member(size, size) for name, size in sizes.items()}
    federation = Federation(members)
    model = federation.roster.model("a")[FIT][0].double()
    local = LocalTraining(epochs=7, lr=0.1)
    found = play(FedAvg(local), federation, tmp_path, rounds=3).server.model[FIT][0]
    for _ in range(3):
        model = sum(
            size / 40 * Quadratic.of(members[name]).after(model, 0.1, 7)
            for name, size in sizes.items()
        )
    torch.testing.assert_close(found.double(), model, atol=2e-6, rtol=0)


def test_a_large_client_weighs_more_than_a_small_one(tmp_path):
    members = {"large": quadratic_member(1, 90), "small": quadratic_member(2, 10)}
    federation = Federation(members)
    local = LocalTraining(epochs=400, lr=0.2, batch=90)
    found = play(FedAvg(local), federation, tmp_path).server.model[FIT][0]
    best = {name: Quadratic.of(member).best for name, member in members.items()}
    expected = 0.9 * best["large"] + 0.1 * best["small"]
    torch.testing.assert_close(found.double(), expected, atol=1e-4, rtol=0)
