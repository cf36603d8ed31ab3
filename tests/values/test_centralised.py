from __future__ import annotations

from tests.values.by_hand import (
    assert_close,
    assert_scores,
    descend,
    initial,
    play,
    scores,
    three_clients,
)

from consort.algorithms.centralised import Centralised
from consort.data.examples import Examples
from consort.training.local import LocalTraining


def test_one_model_descends_on_the_union_of_all_data(tmp_path):
    federation = three_clients()
    union = Examples.concatenate([federation.data(c).train for c in federation.client_ids])
    local = LocalTraining(epochs=3, lr=0.2, batch=60)
    outcome = play(Centralised(local), federation, tmp_path, rounds=2)
    model = descend(initial(federation), union, 0.2, 6)
    assert_close(outcome.server.model, model)
    everywhere = dict.fromkeys(federation.client_ids, model)
    assert_scores(scores(outcome, "global", 2), federation, everywhere)
