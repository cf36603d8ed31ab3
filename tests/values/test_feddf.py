from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tests.helpers import linear_examples, tiny_federation, unlike_models_federation
from tests.values.by_hand import (
    SIZES,
    B,
    C,
    V,
    W,
    assert_close,
    assert_scores,
    average,
    descend,
    distance,
    initial,
    play,
    scores,
    three_clients,
)
from torch.nn import functional as F

from consort.algorithms.fedavg import FedAvg
from consort.algorithms.feddf import FedDF
from consort.data.examples import Examples
from consort.errors import UsageError
from consort.training.local import LocalTraining

LR, STEPS, RATE = 0.2, 4, 0.01
LOCAL = LocalTraining(epochs=2, lr=LR)
PUBLIC = linear_examples("public", 30).inputs


def federation():
    return replace(three_clients(), server_data=Examples(PUBLIC, {}))


def output(weights, inputs):
    return F.relu(inputs @ weights[W].T + weights[B]) @ weights[V].T + weights[C]


def distilled(start, teachers):
    """Adam on KL(mean prediction || prediction) over all examples of the server."""
    logits = torch.stack([output(teacher, PUBLIC) for teacher in teachers]).mean(0)
    leaves = {name: tensor.clone().requires_grad_() for name, tensor in start.items()}
    optimizer = torch.optim.Adam(leaves.values(), lr=RATE)
    for _ in range(STEPS):
        optimizer.zero_grad()
        predicted = F.log_softmax(output(leaves, PUBLIC), 1)
        F.kl_div(predicted, logits.softmax(1), reduction="batchmean").backward()
        optimizer.step()
    return {name: leaf.detach() for name, leaf in leaves.items()}


def test_rounds_follow_the_paper(tmp_path):
    clients = federation()
    algorithm = FedDF(LOCAL, server_steps=STEPS, server_batch=100, server_lr=RATE)
    outcome = play(algorithm, clients, tmp_path, rounds=2)
    model = initial(clients)
    for round_ in (1, 2):
        teachers = [descend(model, clients.data(c).train, LR, 2) for c in clients.client_ids]
        model = distilled(average(teachers, SIZES), teachers)
        expected = dict.fromkeys(clients.client_ids, model)
        assert_scores(scores(outcome, "global", round_), clients, expected)
    assert distance(outcome.server.models["c0"], model) < 1e-5


def test_at_rate_zero_it_is_fedavg(tmp_path):
    clients = federation()
    still = play(FedDF(LOCAL, server_lr=0.0), clients, tmp_path / "df", rounds=2)
    plain = play(FedAvg(LOCAL), clients, tmp_path / "plain", rounds=2)
    assert_close(still.server.models["c0"], plain.server.model)


def test_a_long_distillation_ends_at_the_mean_prediction(tmp_path):
    """The student has the teachers' architecture and few examples to imitate them on."""
    clients = replace(three_clients(), server_data=Examples(PUBLIC[:3], {}))
    algorithm = FedDF(LOCAL, server_steps=600, server_lr=0.02)
    outcome = play(algorithm, clients, tmp_path)
    teachers = [descend(initial(clients), clients.data(c).train, LR, 2) for c in clients.client_ids]
    logits = torch.stack([output(teacher, PUBLIC[:3]) for teacher in teachers]).mean(0)
    found = output(outcome.server.models["c0"], PUBLIC[:3]).softmax(1)
    torch.testing.assert_close(found, logits.softmax(1), atol=1e-3, rtol=0)


def test_unlike_models_learn_from_each_other(tmp_path):
    """Without the teachers of the other architecture, a model becomes another one."""
    clients = unlike_models_federation(4)
    outcome = play(FedDF(LOCAL, server_steps=3), clients, tmp_path / "both")
    assert set(outcome.server.models) == {"c0", "c1"}
    assert outcome.server.models["c0"].shapes != outcome.server.models["c1"].shapes
    small = replace(
        clients,
        members={c: clients.members[c] for c in ("c0", "c2")},
        client_ids=(),
        evaluation_ids=(),
    )
    alone = play(FedDF(LOCAL, server_steps=3), small, tmp_path / "small")
    assert distance(alone.server.models["c0"], outcome.server.models["c0"]) > 1e-5


def test_a_server_without_data_is_refused_before_anything_runs():
    with pytest.raises(UsageError, match=r"feddf: .* add \[server\.data\]"):
        FedDF().start(three_clients().roster)


def test_data_that_do_not_fit_the_models_are_refused(tmp_path):
    clients = replace(tiny_federation(2), server_data=Examples(torch.zeros(5, 3), {}))
    with pytest.raises(UsageError, match=r"inputs of shape 3 .*, but the model of client c0"):
        play(FedDF(LOCAL), clients, tmp_path)


def test_a_run_does_not_go_on_with_other_data_of_the_server(tmp_path):
    play(FedDF(LOCAL, server_steps=2), federation(), tmp_path)
    other = replace(three_clients(), server_data=Examples(PUBLIC + 1, {}))
    with pytest.raises(UsageError, match=r"another recipe\.server"):
        play(FedDF(LOCAL, server_steps=2), other, tmp_path, rounds=2)
