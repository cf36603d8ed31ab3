from __future__ import annotations

import pytest
import torch
from tests.helpers import tiny_federation
from tests.values.by_hand import (
    assert_close,
    assert_scores,
    descend,
    distance,
    initial,
    play,
    scores,
    three_clients,
)

from consort.algorithms.local_only import LocalOnly
from consort.core.params import has_role
from consort.training.local import LocalTraining


def test_every_client_descends_on_its_own_data_from_where_it_stopped(tmp_path):
    federation = three_clients()
    outcome = play(LocalOnly(LocalTraining(epochs=3, lr=0.2)), federation, tmp_path, rounds=2)
    for round_ in (1, 2):
        models = {
            client: descend(initial(federation), federation.data(client).train, 0.2, 3 * round_)
            for client in federation.client_ids
        }
        assert_scores(scores(outcome, "personal", round_), federation, models)
    for client, model in models.items():
        assert_close(outcome.states[client]["model"], model)
    assert distance(models["c0"], models["c1"]) > 0.01


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_with_a_rate_of_zero_nobody_learns_anything(tmp_path, optimizer, normed_encoder):
    """The row `untrained` of tables: only the statistics of BatchNorm follow the data."""
    federation = tiny_federation(2, model={"name": "normed"})
    local = LocalTraining(steps=1, lr=0.0, weight_decay=0.1, optimizer=optimizer)
    outcome = play(LocalOnly(local), federation, tmp_path, rounds=3)
    start = initial(federation)
    for client in federation.client_ids:
        model = outcome.states[client]["model"]
        for name, tensor in model.items():
            assert torch.equal(tensor, start[name]) != has_role(name, "buffers")
