from __future__ import annotations

from tests.values.by_hand import assert_close, descend, distance, initial, play, three_clients

from consort.algorithms.local_only import LocalOnly
from consort.local import LocalTraining


def test_every_client_descends_on_its_own_data_from_where_it_stopped(tmp_path):
    federation = three_clients()
    outcome = play(LocalOnly(LocalTraining(epochs=3, lr=0.2)), federation, tmp_path, rounds=2)
    for client in federation.client_ids:
        model = descend(initial(federation), federation.data(client).train, 0.2, 6)
        assert_close(outcome.states[client]["model"], model)
    models = [state["model"] for state in outcome.states.values()]
    assert distance(models[0], models[1]) > 0.01
