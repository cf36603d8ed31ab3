from __future__ import annotations

import pytest
import torch
from tests.helpers import tiny_federation
from tests.values.by_hand import (
    SIZES,
    Quadratic,
    assert_close,
    assert_scores,
    average,
    descend,
    distance,
    initial,
    loss,
    play,
    quadratic_member,
    scores,
    three_clients,
)

from consort.algorithms.apfl import APFL, Mixture
from consort.algorithms.fedavg import FedAvg
from consort.core.params import Params
from consort.core.wire import encode
from consort.federation.federation import Federation
from consort.training.local import LocalTraining
from consort.training.optimizers import make_optimizer

LR, STEPS = 0.2, 3
KEPT = "batchnorm statistics"
LOCAL = LocalTraining(epochs=STEPS, lr=LR)


def mixed(own, model, alpha):
    return {name: alpha * own[name] + (1 - alpha) * model[name] for name in own}


def of_client(outcome, client, model):
    """The mixture that a client is tested with."""
    state = outcome.states[client]
    return mixed(state["personal"], model, state["alpha"])


def by_hand(w, own, alpha, examples, lr=LR, steps=STEPS):
    """Autograd differentiates the mixture with respect to v and alpha; w takes plain steps."""
    for _ in range(steps):
        leaves = {name: tensor.clone().requires_grad_() for name, tensor in own.items()}
        share = torch.tensor(alpha, dtype=torch.float64, requires_grad=True)
        loss(mixed(leaves, w, share.float()), examples).backward()
        own = {name: own[name] - lr * leaf.grad for name, leaf in leaves.items()}
        alpha = min(max(alpha - lr * float(share.grad), 0.0), 1.0)
        w = descend(w, examples, lr, 1)
    return w, own, alpha


@pytest.mark.parametrize("alpha", [0.3, 0.5, 0.8])
def test_rounds_follow_the_gradient_of_the_mixed_model(alpha, tmp_path):
    federation = three_clients()
    outcome = play(APFL(LOCAL, alpha=alpha), federation, tmp_path, rounds=3)
    w = initial(federation)
    states = dict.fromkeys(federation.client_ids, (w, alpha))
    for round_ in (1, 2, 3):
        trained = {c: by_hand(w, *states[c], federation.data(c).train) for c in states}
        states = {client: (own, share) for client, (_, own, share) in trained.items()}
        w = average([copy for copy, _, _ in trained.values()], SIZES)
        personal = {client: mixed(own, w, share) for client, (own, share) in states.items()}
        assert_scores(scores(outcome, "personal", round_), federation, personal)
        assert_scores(scores(outcome, "global", round_), federation, dict.fromkeys(states, w))
    for client, (own, share) in states.items():
        assert_close(outcome.states[client]["personal"], own)
        assert abs(outcome.states[client]["alpha"] - share) < 1e-6
        assert abs(share - alpha) > 1e-3


def test_alpha_moves_by_the_slope_of_the_loss_along_it(tmp_path):
    federation = three_clients()
    local = LocalTraining(lr=LR)
    before = play(APFL(local), federation, tmp_path / "before", rounds=2)
    after = play(APFL(local), federation, tmp_path / "after", rounds=3)
    for client, state in before.states.items():
        own, alpha, w = state["personal"], state["alpha"], before.server.model
        own, w = ({name: t.double() for name, t in model.items()} for model in (own, w))
        train = federation.data(client).train
        train = type(train)(train.inputs.double(), train.targets)
        above, below = (float(loss(mixed(own, w, alpha + h), train)) for h in (1e-5, -1e-5))
        moved = after.states[client]["alpha"] - alpha
        assert moved == pytest.approx(-LR * (above - below) / 2e-5, rel=1e-3)
        assert moved != 0


def test_the_global_model_is_that_of_fedavg_bit_for_bit(tmp_path):
    federation = three_clients()
    apfl = play(APFL(LOCAL), federation, tmp_path / "apfl", rounds=3)
    plain = play(FedAvg(LOCAL), federation, tmp_path / "plain", rounds=3)
    assert encode(apfl.server) == encode(plain.server)


def test_without_a_share_of_its_own_a_client_has_the_global_model(tmp_path):
    federation = three_clients()
    outcome = play(APFL(LOCAL, alpha=0.0), federation, tmp_path)
    assert {state["alpha"] for state in outcome.states.values()} == {0.0}
    assert scores(outcome, "personal", 1) == scores(outcome, "global", 1)


def test_alpha_stays_between_nothing_and_all(tmp_path):
    federation = three_clients()
    outcome = play(APFL(LocalTraining(epochs=4, lr=1.5)), federation, tmp_path, rounds=6)
    shares = [state["alpha"] for state in outcome.states.values()]
    assert all(0.0 <= share <= 1.0 for share in shares)
    assert set(shares) & {0.0, 1.0}


def test_the_mixture_finds_the_optimum_of_every_client(tmp_path):
    """One step a round, so that v is always moved beside the model it will be tested with."""
    members = {"a": quadratic_member(1, 30), "b": quadratic_member(2, 30)}
    outcome = play(
        APFL(LocalTraining(lr=0.5)), Federation(members), tmp_path, rounds=120, evaluate_every=0
    )
    for client, member in members.items():
        best = Quadratic.of(member).best
        found = of_client(outcome, client, outcome.server.model)["heads.fit.weight"][0].double()
        torch.testing.assert_close(found, best, atol=2e-3, rtol=0)
        assert float((outcome.server.model["heads.fit.weight"][0] - best).norm()) > 0.1


@pytest.mark.parametrize(
    "settings", [{"momentum": 0.9}, {"optimizer": "adam"}, {"weight_decay": 0.1}, {"clip": 0.1}]
)
def test_the_own_model_is_trained_with_the_settings_of_the_others(settings, tmp_path):
    """As long as alpha is 1, the own model is one that FedAvg would have trained for it alone."""
    federation = three_clients()
    local = LocalTraining(epochs=4, lr=1e-4, **settings)
    outcome = play(APFL(local, alpha=1.0), federation, tmp_path / "apfl")
    for client, member in federation.members.items():
        alone = play(FedAvg(local), Federation({client: member}), tmp_path / client).server.model
        assert outcome.states[client]["alpha"] > 0.999
        assert distance(outcome.states[client]["personal"], alone) < 1e-6
        assert distance(outcome.states[client]["personal"], initial(federation)) > 1e-6


@pytest.mark.usefixtures("normed_encoder")
def test_statistics_of_the_mixture_and_of_the_global_copy_are_kept_apart(tmp_path):
    federation = tiny_federation(2, model={"name": "normed"})
    local = LocalTraining(lr=LR)
    outcome = play(APFL(local), federation, tmp_path / "apfl")
    plain = play(FedAvg(local), federation, tmp_path / "plain")
    assert encode(outcome.server) == encode(plain.server)
    for client, member in federation.members.items():
        alone = play(FedAvg(local), Federation({client: member}), tmp_path / client).server.model
        seen = outcome.states[client]["personal"].only("buffers")
        assert_close(seen, alone.only("buffers"))  # in the first step both models are the same
        assert distance(seen, outcome.server.model.only("buffers")) > 1e-3


@pytest.mark.usefixtures("normed_encoder")
def test_each_of_the_two_models_has_local_statistics_of_its_own(tmp_path):
    def played(algorithm):
        federation = tiny_federation(2, model={"name": "normed"}, batchnorm="local")
        return play(algorithm, federation, tmp_path / algorithm.__class__.__name__, rounds=3).states

    both, plain = (played(kind(LocalTraining(lr=LR))) for kind in (APFL, FedAvg))
    for client, state in both.items():
        assert encode(state[KEPT]) == encode(plain[client][KEPT])
        seen = state["personal"].only("buffers")
        assert distance(seen, Params({name: state[KEPT][name] for name in seen})) > 1e-4


def test_parameters_are_mixed_and_statistics_are_those_of_the_mixture():
    own = Params({"encoder.w": torch.tensor([8.0]), "buffers.encoder.m": torch.tensor([8.0])})
    mixture = Mixture(own, 0.25, LOCAL, LR, make_optimizer("sgd"))
    found = mixture.with_global(own * 0.5)
    assert {name: float(tensor) for name, tensor in found.items()} == {
        "encoder.w": 0.25 * 8 + 0.75 * 4,
        "buffers.encoder.m": 8.0,
    }


def test_a_client_that_was_absent_keeps_its_model_and_its_share(tmp_path):
    federation = three_clients()
    rounds = [
        play(APFL(LOCAL), federation, tmp_path / str(count), rounds=count, participation=0.3)
        for count in (1, 2)
    ]
    (trained,) = [client for client, state in rounds[0].states.items() if state]
    assert {client for client, state in rounds[1].states.items() if state} > {trained}
    assert encode(rounds[1].states[trained]) == encode(rounds[0].states[trained])
    never = {client for client, state in rounds[1].states.items() if not state}
    personal, received = (scores(rounds[1], model, 2) for model in ("personal", "global"))
    assert {c for c in personal if personal[c] == received[c]} == never
    assert never
