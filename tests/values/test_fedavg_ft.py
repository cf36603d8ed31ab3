from __future__ import annotations

import pytest
from tests.values.by_hand import assert_scores, descend, play, scores, three_clients

from consort.algorithms.fedavg import FedAvg
from consort.algorithms.fedavg_ft import FedAvgFT
from consort.core.wire import encode
from consort.training.local import LocalTraining

LOCAL = LocalTraining(epochs=3, lr=0.2)


def test_the_global_model_is_that_of_fedavg_bit_for_bit(tmp_path):
    federation = three_clients()
    tuned = play(FedAvgFT(LOCAL), federation, tmp_path / "tuned", rounds=3)
    plain = play(FedAvg(LOCAL), federation, tmp_path / "plain", rounds=3)
    assert encode(tuned.server) == encode(plain.server)
    assert [row for row in tuned.rows if row.model != "tuned"] == plain.rows


@pytest.mark.parametrize("tuning_epochs", [1, 4])
def test_scores_are_those_after_local_epochs_from_the_global_model(tuning_epochs, tmp_path):
    federation = three_clients()
    algorithm = FedAvgFT(LOCAL, tuning_epochs=tuning_epochs)
    outcome = play(algorithm, federation, tmp_path, rounds=2)
    received = {client: dict(outcome.server.model) for client in federation.client_ids}
    assert_scores(scores(outcome, "global", 2), federation, received)
    tuned = {
        client: descend(model, federation.data(client).train, 0.2, tuning_epochs)
        for client, model in received.items()
    }
    assert_scores(scores(outcome, "tuned", 2), federation, tuned)
