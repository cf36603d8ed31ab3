from __future__ import annotations

import pytest
from tests.contract.helpers import overhear
from tests.values.by_hand import (
    ENCODER,
    HEAD,
    SIZES,
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
from tests.values.test_fedmh import bank, banks

from consort.algorithms._own_model import MODEL
from consort.algorithms.lg_fedavg import LGFedAvg
from consort.algorithms.local_only import LocalOnly
from consort.core.params import mean
from consort.core.wire import tensors_in
from consort.federation.federation import Federation
from consort.federation.participation import cohort
from consort.training.local import LocalTraining

LOCAL = LocalTraining(epochs=2, lr=0.2)


@pytest.mark.parametrize("share", [1.0, 0.7])
def test_heads_are_averaged_by_examples_and_encoders_stay(share, tmp_path):
    federation = three_clients()
    ids, start = federation.client_ids, initial(federation)
    head = {name: start[name] for name in HEAD}
    encoders = {client: {name: start[name] for name in ENCODER} for client in ids}
    outcome = play(LGFedAvg(LOCAL), federation, tmp_path, rounds=3, participation=share)
    for round_ in (1, 2, 3):
        present = cohort(ids, share, 0, round_)
        trained = {
            client: descend(encoders[client] | head, federation.data(client).train, 0.2, 2)
            for client in present
        }
        encoders |= {c: {name: model[name] for name in ENCODER} for c, model in trained.items()}
        sizes = [SIZES[ids.index(client)] for client in present]
        heads = [{name: model[name] for name in HEAD} for model in trained.values()]
        head = average(heads, sizes)
        personal = {client: encoder | head for client, encoder in encoders.items()}
        assert_scores(scores(outcome, "personal", round_), federation, personal)
    assert_close(outcome.server.heads, head)
    for client, model in trained.items():
        assert_close(outcome.states[client][MODEL], model)
    assert distance(encoders["c0"], encoders["c1"]) > 0.01


def test_one_client_alone_is_local_training_bit_for_bit(tmp_path):
    federation = Federation({"c0": bank(0)})
    local = LocalTraining(lr=0.1, batch=8)
    shared, alone = (
        play(kind(local), federation, tmp_path / kind.__name__, rounds=3).states["c0"][MODEL]
        for kind in (LGFedAvg, LocalOnly)
    )
    assert shared.equals(alone)


def test_unlike_encoders_share_both_heads_and_nothing_else(tmp_path):
    federation = banks()
    algorithm = LGFedAvg(LocalTraining(lr=0.1, batch=8))
    outcome = play(algorithm, federation, tmp_path)
    kept = [outcome.states[client][MODEL].only("heads") for client in federation.client_ids]
    assert (outcome.server.heads - mean(kept)).norm() < 1e-6
    assert (
        len({len(state[MODEL]["encoder.layers.0.bias"]) for state in outcome.states.values()}) == 3
    )
    exchanges, _ = overhear(algorithm, federation)
    said = {
        name
        for exchange in exchanges
        for name, _ in tensors_in([exchange.call.payload, exchange.reply.content])
    }
    assert said == set(outcome.server.heads)
