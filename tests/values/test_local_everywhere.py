from __future__ import annotations

import pytest
from tests.helpers import tiny_federation
from tests.values.by_hand import assert_scores, descend, initial, play, three_clients

from consort.algorithms.local_everywhere import LocalEverywhere
from consort.algorithms.local_only import LocalOnly
from consort.training.local import LocalTraining

LOCAL = LocalTraining(lr=0.2, epochs=2)


def test_every_model_is_tested_on_every_clients_data(tmp_path):
    federation = three_clients()
    outcome = play(LocalEverywhere(LOCAL), federation, tmp_path, rounds=2)
    start = initial(federation)
    models = {c: descend(start, federation.data(c).train, 0.2, 4) for c in federation.client_ids}
    for owner, model in models.items():
        for client in federation.client_ids:
            name = "personal" if owner == client else f"model of {owner}"
            found = {
                row.client: row.value
                for row in outcome.rows
                if (row.metric, row.split, row.round) == ("loss", "test", 2)
                and (row.model, row.client) == (name, client)
            }
            assert_scores(found, federation, {client: model})


def test_the_own_model_is_that_of_local_only(tmp_path):
    rows = []
    for algorithm in (LocalEverywhere(LOCAL), LocalOnly(LOCAL)):
        folder = tmp_path / type(algorithm).__name__
        outcome = play(algorithm, tiny_federation(3), folder, rounds=3, participation=0.7)
        rows.append([row for row in outcome.rows if row.model == "personal"])
    assert rows[0] == rows[1]


def test_the_matrix_is_noted_for_the_report(tmp_path):
    outcome = play(LocalEverywhere(LOCAL), three_clients(), tmp_path)
    noted = {
        (row.part, row.client): row.value
        for row in outcome.rows
        if row.metric == "accuracy_elsewhere"
    }
    assert len(noted) == 9
    for row in outcome.rows:
        if (row.metric, row.split) == ("accuracy", "test"):
            owner = row.client if row.model == "personal" else row.model.removeprefix("model of ")
            assert noted[f"model of {owner}", row.client] == pytest.approx(row.value)
