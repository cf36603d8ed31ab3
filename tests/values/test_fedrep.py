from __future__ import annotations

import pytest
from tests.values.by_hand import (
    ENCODER,
    HEAD,
    SIZES,
    assert_close,
    assert_scores,
    average,
    descend,
    initial,
    play,
    scores,
    three_clients,
)

from consort.algorithms.fedrep import FedRep
from consort.training.local import LocalTraining


@pytest.mark.parametrize(("head_epochs", "epochs"), [(1, 1), (3, 2)])
def test_the_head_moves_on_a_frozen_encoder_then_the_encoder_under_that_head(
    head_epochs, epochs, tmp_path
):
    federation = three_clients()
    start = initial(federation)
    encoder = {name: start[name] for name in ENCODER}
    models = dict.fromkeys(federation.client_ids, start)
    algorithm = FedRep(LocalTraining(epochs=epochs, lr=0.2), head_epochs=head_epochs)
    outcome = play(algorithm, federation, tmp_path, rounds=2)
    for round_ in (1, 2):
        for client, model in models.items():
            train = federation.data(client).train
            fitted = descend(model | encoder, train, 0.2, head_epochs, moving=HEAD)
            models[client] = descend(fitted, train, 0.2, epochs, moving=ENCODER)
        encoders = [{name: model[name] for name in ENCODER} for model in models.values()]
        encoder = average(encoders, SIZES)
        personal = {client: model | encoder for client, model in models.items()}
        assert_scores(scores(outcome, "personal", round_), federation, personal)
    assert_close(outcome.server.encoder, encoder)
    for client, model in models.items():
        own = {name: model[name] for name in HEAD}
        assert_close(outcome.states[client]["personal"], own)
