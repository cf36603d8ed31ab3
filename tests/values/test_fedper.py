from __future__ import annotations

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

from consort.algorithms.fedper import FedPer
from consort.training.local import LocalTraining


def test_encoders_are_averaged_by_examples_and_heads_stay(tmp_path):
    federation = three_clients()
    start = initial(federation)
    encoder = {name: start[name] for name in ENCODER}
    heads = {c: {name: start[name] for name in HEAD} for c in federation.client_ids}
    outcome = play(FedPer(LocalTraining(epochs=2, lr=0.2)), federation, tmp_path, rounds=2)
    for round_ in (1, 2):
        trained = {
            client: descend(encoder | head, federation.data(client).train, 0.2, 2)
            for client, head in heads.items()
        }
        heads = {c: {name: model[name] for name in HEAD} for c, model in trained.items()}
        encoders = [{name: model[name] for name in ENCODER} for model in trained.values()]
        encoder = average(encoders, SIZES)
        personal = {client: encoder | head for client, head in heads.items()}
        assert_scores(scores(outcome, "personal", round_), federation, personal)
    assert_close(outcome.server.encoder, encoder)
    for client, head in heads.items():
        assert_close(outcome.states[client]["personal"], head)
    assert distance(heads["c0"], heads["c1"]) > 0.01
