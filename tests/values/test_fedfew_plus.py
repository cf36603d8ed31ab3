from __future__ import annotations

import pytest
import torch
from tests.values.by_hand import (
    B,
    C,
    V,
    W,
    assert_close,
    assert_scores,
    average,
    descend,
    distance,
    gradient,
    initial,
    loss,
    play,
    scores,
    three_clients,
)

from consort.aggregation.stch_set import set_weights
from consort.algorithms.fedavg import FedAvg
from consort.algorithms.fedfew_plus import OWN, FedFewPlus
from consort.errors import UsageError
from consort.training.local import LocalTraining

LOCAL = LocalTraining(epochs=2, lr=0.2)
PLAIN = {"prior": False, "own_head": False, "regret": False}
"""None of what goes beyond a few models."""


def frequencies(federation, client):
    labels = federation.data(client).train.targets["classify"]
    counts = torch.bincount(labels, minlength=3) + 0.5
    return (counts / counts.sum()).log()


def whole(server, number):
    return dict(server.common | server.variants[number])


def test_one_model_counted_by_examples_is_fedavg(tmp_path):
    federation = three_clients()
    options = {"models": 1, "weights": "examples", **PLAIN}
    few = play(FedFewPlus(LOCAL, **options), federation, tmp_path / "few", rounds=3)
    plain = play(FedAvg(LOCAL), federation, tmp_path / "plain", rounds=3)
    assert_close(whole(few.server, 0), plain.server.model)


def test_all_models_are_trained_and_weighted_as_the_set_objective_says(tmp_path):
    federation = three_clients()
    options = {"models": 2, "sample": False, "share_encoder": False, "full_step": False, **PLAIN}
    outcome = play(FedFewPlus(LOCAL, mu=0.3, **options), federation, tmp_path)
    starts = [dict(start) for start in federation.roster.starts(2)]
    data = {client: federation.data(client).train for client in federation.client_ids}
    losses = [[float(loss(start, part)) for start in starts] for part in data.values()]
    weights = set_weights(torch.tensor(losses), 0.3).gradient
    for k, start in enumerate(starts):
        expected = dict(start)
        for i, part in enumerate(data.values()):
            trained = descend(start, part, 0.2, 2)
            for name in expected:
                expected[name] = expected[name] + weights[i, k] * (trained[name] - start[name])
        assert_close(outcome.server.variants[k], expected)


def test_a_full_step_of_every_model_is_the_mean_over_those_who_trained_it(tmp_path):
    federation = three_clients()
    options = {"models": 2, "share_encoder": False, "weights": "examples", **PLAIN}
    # So smooth that everybody draws either model with equal chances.
    outcome = play(FedFewPlus(LOCAL, mu=1e6, **options), federation, tmp_path)
    starts = [dict(start) for start in federation.roster.starts(2)]
    sizes = {client: len(federation.data(client).train) for client in federation.client_ids}
    found = []
    for k, start in enumerate(starts):
        trained = {c: descend(start, federation.data(c).train, 0.2, 2) for c in sizes}
        groups = [
            [c for n, c in enumerate(sizes) if mask >> n & 1] for mask in range(1, 2 ** len(sizes))
        ]
        means = {
            tuple(group): average([trained[c] for c in group], [sizes[c] for c in group])
            for group in groups
        } | {(): start}
        matching = [g for g, m in means.items() if distance(outcome.server.variants[k], m) < 2e-6]
        assert len(matching) == 1
        found += matching[0]
    assert sorted(found) == sorted(sizes)


def test_label_frequencies_are_added_for_the_client_and_never_sent(tmp_path):
    federation = three_clients()
    options = {"models": 1, "weights": "examples", "own_head": False, "regret": False}
    outcome = play(FedFewPlus(LOCAL, **options), federation, tmp_path)
    start = initial(federation)
    adapted, trained = {}, {}
    for client in federation.client_ids:
        shifted = start | {C: start[C] + frequencies(federation, client)}
        after = descend(shifted, federation.data(client).train, 0.2, 2)
        trained[client] = after | {C: after[C] - frequencies(federation, client)}
    sizes = [len(federation.data(client).train) for client in federation.client_ids]
    mean = average(list(trained.values()), sizes)
    assert_close(whole(outcome.server, 0), mean)
    for client in federation.client_ids:
        adapted[client] = mean | {C: mean[C] + frequencies(federation, client)}
    assert_scores(scores(outcome, "personal", 1), federation, adapted)


def test_the_own_head_is_fitted_to_the_received_encoder_and_stays(tmp_path):
    federation = three_clients()
    outcome = play(FedFewPlus(LOCAL, models=1), federation, tmp_path, rounds=2)
    first = play(FedFewPlus(LOCAL, models=1), federation, tmp_path / "first")
    final = {}
    for client in federation.client_ids:
        part = federation.data(client).train
        start = initial(federation)
        own = start | {C: start[C] + frequencies(federation, client)}
        for encoder in (start, first.server.common):
            own = descend(own | {W: encoder[W], B: encoder[B]}, part, 0.2, 2, moving=(V, C))
        assert_close(outcome.states[client][OWN], {V: own[V], C: own[C]})
        received = own | {W: outcome.server.common[W], B: outcome.server.common[B]}
        final[client] = descend(received, part, 0.2, 2, moving=(V, C))
    assert_scores(scores(outcome, "personal", 2), federation, final)


def test_the_encoder_learns_under_both_heads(tmp_path):
    federation = three_clients()
    options = {"models": 1, "prior": False, "regret": False, "weights": "examples"}
    outcome = play(FedFewPlus(LOCAL, **options), federation, tmp_path)
    start, trained = initial(federation), []
    for client in federation.client_ids:
        part = federation.data(client).train
        own = descend(start, part, 0.2, 2, moving=(V, C))
        weights = dict(start)
        for _ in range(2):
            slope = gradient(weights, part)
            beside = gradient(weights | {V: own[V], C: own[C]}, part)
            for name in weights:
                more = beside[name] if name in (W, B) else 0.0
                weights[name] = weights[name] - 0.2 * (slope[name] + more)
        trained.append(weights)
    sizes = [len(federation.data(client).train) for client in federation.client_ids]
    assert_close(whole(outcome.server, 0), average(trained, sizes))


def test_regret_leaves_out_what_no_model_could_spare_a_client(tmp_path):
    federation = three_clients()
    weights = {}
    for regret in (True, False):
        algorithm = FedFewPlus(LOCAL, models=1, mu=0.1, regret=regret)
        outcome = play(algorithm, federation, tmp_path / str(regret))
        weights[regret] = {
            row.client: row.value for row in outcome.rows if row.metric == "client_weight"
        }
    start = initial(federation)
    losses = {}
    for client in federation.client_ids:
        part = federation.data(client).train
        shifted = start | {C: start[C] + frequencies(federation, client)}
        own = descend(shifted, part, 0.2, 2, moving=(V, C))
        losses[client] = float(loss(shifted, part)), float(loss(own, part))
    for regret, found in weights.items():
        table = torch.tensor([[mine - regret * own] for mine, own in losses.values()])
        expected = set_weights(table, 0.1).clients.tolist()
        assert list(found.values()) == pytest.approx(expected, abs=1e-4)


def test_smoothness_falls_geometrically(tmp_path):
    objective = {}
    for anneal in (1.0, 0.01):
        algorithm = FedFewPlus(LocalTraining(lr=0.0), models=1, anneal=anneal, **PLAIN)
        outcome = play(algorithm, three_clients(), tmp_path / str(anneal), rounds=3)
        objective[anneal] = [row.value for row in outcome.rows if row.metric == "objective"]
    federation = three_clients()
    table = torch.tensor(
        [
            [float(loss(initial(federation), federation.data(c).train))]
            for c in federation.client_ids
        ]
    )
    for anneal, found in objective.items():
        for round_, value in enumerate(found):
            mu = 0.2 * anneal ** (round_ / 2)
            expected = mu * float((table / mu).logsumexp(0))
            assert value == pytest.approx(expected, abs=1e-5)


def test_nothing_moves_without_a_rate(tmp_path):
    federation = three_clients()
    outcome = play(FedFewPlus(LocalTraining(lr=0.0)), federation, tmp_path, rounds=2)
    for number, start in enumerate(federation.roster.starts(3)):
        assert_close(outcome.server.variants[number], start.without("encoder"))
    assert_close(outcome.server.common, federation.roster.shared("encoder"))


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"models": 4}, r"more models \(4\) than clients \(3\)"),
        ({"share_encoder": False}, "own_head = false"),
        ({"own_head": False}, "regret = false"),
    ],
)
def test_what_cannot_be_is_refused(options, complaint):
    with pytest.raises(UsageError, match=complaint):
        FedFewPlus(LOCAL, **options).start(three_clients().roster)
