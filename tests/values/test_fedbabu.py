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

from consort.algorithms.fedbabu import FedBABU
from consort.algorithms.fedper import FedPer
from consort.training.local import LocalTraining

LOCAL = LocalTraining(epochs=2, lr=0.2)


def encoder_by_hand(federation, rounds):
    start = initial(federation)
    head, encoder = ({name: start[name] for name in part} for part in (HEAD, ENCODER))
    for _ in range(rounds):
        trained = [
            descend(encoder | head, federation.data(client).train, 0.2, 2, moving=ENCODER)
            for client in federation.client_ids
        ]
        assert all(distance({n: model[n] for n in HEAD}, head) == 0 for model in trained)
        encoder = average([{n: model[n] for n in ENCODER} for model in trained], SIZES)
    return encoder, head


def test_encoders_learn_under_heads_that_never_move(tmp_path):
    federation = three_clients()
    encoder, _ = encoder_by_hand(federation, 2)
    outcome = play(FedBABU(LOCAL), federation, tmp_path / "babu", rounds=2)
    assert_close(outcome.server.encoder, encoder)
    assert not any(outcome.states.values())
    moving_heads = play(FedPer(LOCAL), federation, tmp_path / "per", rounds=2)
    assert distance(outcome.server.encoder, moving_heads.server.encoder) > 1e-3


def test_scores_are_before_and_after_tuning_everything(tmp_path):
    federation = three_clients()
    encoder, head = encoder_by_hand(federation, 2)
    outcome = play(FedBABU(LOCAL, tuning_epochs=10), federation, tmp_path, rounds=2)
    received = dict.fromkeys(federation.client_ids, encoder | head)
    assert_scores(scores(outcome, "global", 2), federation, received)
    tuned = {
        client: descend(model, federation.data(client).train, 0.2, 10)
        for client, model in received.items()
    }
    assert_scores(scores(outcome, "tuned", 2), federation, tuned)
