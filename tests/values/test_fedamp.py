from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.helpers import tiny_federation
from tests.values.by_hand import (
    Quadratic,
    assert_close,
    assert_scores,
    average,
    descend,
    distance,
    initial,
    play,
    quadratic_member,
    scores,
    three_clients,
)

from consort.aggregation.distance_attention import distance_attention, squared_distances
from consort.algorithms.fedamp import FedAMP
from consort.algorithms.local_only import LocalOnly
from consort.core.params import Params
from consort.core.wire import encode
from consort.federation.federation import Federation
from consort.federation.participation import cohort
from consort.training.local import LocalTraining

LOCAL = LocalTraining(epochs=3, lr=0.2)


def points_to_distances(points):
    return torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist") ** 2


@st.composite
def some_distances(draw):
    generator = torch.Generator().manual_seed(draw(st.integers(0, 999)))
    shape = draw(st.integers(1, 7)), draw(st.integers(1, 4))
    points = torch.randn(shape, generator=generator, dtype=torch.float64)
    return points_to_distances(points * 10.0 ** draw(st.integers(-6, 6)))


positive = st.floats(0.01, 20)


@given(some_distances(), positive, positive)
def test_attention_is_a_mean_in_which_nobody_forgets_itself(distances, alpha, sigma):
    weights = distance_attention(distances, alpha, sigma)
    count = len(weights)
    torch.testing.assert_close(weights.sum(1), torch.ones(count).double())
    assert float(weights.min()) >= 0
    assert float(weights.diagonal().min()) >= 1 / count - 1e-12


@given(some_distances(), positive, positive, st.integers(-8, 8))
def test_attention_does_not_depend_on_the_size_of_the_model(distances, alpha, sigma, scale):
    found = distance_attention(distances * 10.0**scale, alpha, sigma)
    torch.testing.assert_close(found, distance_attention(distances, alpha, sigma))


@given(some_distances(), positive, positive)
def test_nearer_models_never_weigh_less(distances, alpha, sigma):
    weights = distance_attention(distances, alpha, sigma)
    for row, far in zip(weights, distances, strict=True):
        in_order = row[far.argsort()][1:]
        assert bool((in_order.diff() <= 1e-12).all())


def test_attention_is_the_formula_of_the_paper_while_the_others_weigh_little():
    distances = torch.tensor([[0.0, 1, 2], [1, 0, 3], [2, 3, 0]]).double()  # 2 on the average
    weights = distance_attention(distances, alpha=0.2, sigma=0.5)
    near, middle, far = (0.2 / 0.5 * math.exp(-d / 2 / 0.5) for d in (1, 2, 3))
    expected = [
        [1 - near - middle, near, middle],
        [near, 1 - near - far, far],
        [middle, far, 1 - middle - far],
    ]
    torch.testing.assert_close(weights, torch.tensor(expected).double())


def test_others_that_weigh_too_much_are_scaled_down_together():
    distances = torch.tensor([[0.0, 1, 2], [1, 0, 3], [2, 3, 0]]).double()
    weights = distance_attention(distances, alpha=5.0, sigma=1.0)
    near, middle = math.exp(-0.5), math.exp(-1)
    expected = [1 / 3, 2 / 3 * near / (near + middle), 2 / 3 * middle / (near + middle)]
    torch.testing.assert_close(weights[0], torch.tensor(expected).double())


def test_equal_models_weigh_equally_and_one_alone_weighs_all():
    plain = torch.full((4, 4), 0.25).double()
    torch.testing.assert_close(distance_attention(torch.zeros(4, 4).double(), 1.0, 1.0), plain)
    assert distance_attention(torch.zeros(1, 1).double(), 1.0, 1.0).tolist() == [[1.0]]


def test_distances_are_between_parameters():
    one = Params({"encoder.w": torch.tensor([1.0, 2.0]), "buffers.m": torch.tensor([9.0])})
    two = Params({"encoder.w": torch.tensor([4.0, 6.0]), "buffers.m": torch.tensor([0.0])})
    expected = torch.tensor([[0.0, 25, 0], [25, 0, 25], [0, 25, 0]]).double()
    torch.testing.assert_close(squared_distances([one, two, one]), expected)


def cloud_by_hand(own, client, alpha, sigma):
    """u_i = (1 - sum xi_ij) theta_i + sum xi_ij theta_j, for weights that need no scaling."""
    flat = {c: torch.cat([t.flatten() for t in model.values()]) for c, model in own.items()}
    far = {(i, j): float((flat[i] - flat[j]).square().sum()) for i in own for j in own if i != j}
    unit = sum(far.values()) / max(len(far), 1)
    xi = {
        j: alpha / sigma * math.exp(-far[client, j] / unit / sigma) for j in own if j != client
    } | {client: 0.0}
    xi[client] = 1 - sum(xi.values())
    return {name: sum(xi[j] * own[j][name] for j in own) for name in own[client]}


@pytest.mark.parametrize("share", [1.0, 0.7])
def test_rounds_follow_the_paper(share, tmp_path):
    federation = three_clients()
    algorithm = FedAMP(LOCAL, strength=0.4, alpha=0.8, sigma=2.0)
    outcome = play(algorithm, federation, tmp_path, rounds=5, participation=share)
    mean, own = initial(federation), {}
    for round_ in range(1, 6):
        new = {}
        for client in cohort(federation.client_ids, share, 0, round_):
            cloud = cloud_by_hand(own, client, 0.8, 2.0) if client in own else mean

            def pull(name, value, cloud=cloud):
                return 0.4 / 0.8 * (value - cloud[name])

            train = federation.data(client).train
            new[client] = descend(own.get(client, cloud), train, 0.2, 3, extra=pull)
        own |= new
        mean = average(list(own.values()), [1] * len(own))
        tested = {client: own.get(client, mean) for client in federation.client_ids}
        assert_scores(scores(outcome, "personal", round_), federation, tested)
    for client, model in own.items():
        assert distance(outcome.states[client]["model"], model) < 5e-6
        assert encode(outcome.server.models[client]) == encode(outcome.states[client]["model"])


def test_the_pull_moves_the_models_that_training_alone_would_find(tmp_path):
    federation = three_clients()
    alone = play(LocalOnly(LOCAL), federation, tmp_path / "alone", rounds=3)
    free = play(FedAMP(LOCAL, strength=0.0), federation, tmp_path / "free", rounds=3)
    default = play(FedAMP(LOCAL), federation, tmp_path / "default", rounds=3)
    for client in federation.client_ids:
        model = alone.states[client]["model"]
        assert encode(free.states[client]["model"]) == encode(model)
        assert distance(default.states[client]["model"], model) > 0.01


def test_a_long_round_ends_between_the_own_optimum_and_the_cloud_model(tmp_path):
    members = {name: quadratic_member(seed, 30) for seed, name in enumerate("abc")}
    algorithm = FedAMP(LocalTraining(epochs=400, lr=0.1), strength=0.5, alpha=2.0)
    before = play(algorithm, Federation(members), tmp_path / "before").server
    outcome = play(algorithm, Federation(members), tmp_path / "after", rounds=2)
    clouds = algorithm.clouds(before)
    for client, member in members.items():
        cloud = clouds[client]["heads.fit.weight"][0].double()
        expected = Quadratic.of(member).pulled(cloud, 0.25).best
        found = outcome.states[client]["model"]["heads.fit.weight"][0].double()
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def test_clients_attend_to_those_that_are_like_them(tmp_path):
    members = {name: quadratic_member(ord(name[0]), 30) for name in ("a1", "a2", "b1", "b2")}
    algorithm = FedAMP(LocalTraining(epochs=20, lr=0.2), sigma=0.5)
    server = play(algorithm, Federation(members), tmp_path, rounds=2).server
    weights = distance_attention(squared_distances(list(server.models.values())), 1.0, 0.5)
    for one, other in ((0, 1), (2, 3)):
        assert float(weights[one, other]) > 3 * float(weights[one, [2 - one, 3 - one]].sum())
    outcome = play(LocalOnly(algorithm.local), Federation(members), tmp_path / "alone", rounds=2)
    assert distance(outcome.states["a1"]["model"], outcome.states["b1"]["model"]) > 0.1


@pytest.mark.usefixtures("normed_encoder")
def test_statistics_are_averaged_but_not_pulled(tmp_path):
    federation = tiny_federation(3, model={"name": "normed"})
    still = LocalTraining(lr=0.0)
    outcome = play(FedAMP(still, strength=9.0), federation, tmp_path / "amp", rounds=2)
    alone = play(LocalOnly(still), federation, tmp_path / "alone", rounds=2)
    for client in federation.client_ids:
        assert encode(outcome.states[client]["model"]) == encode(alone.states[client]["model"])
    cloud = FedAMP(still).clouds(outcome.server)["c0"]
    models = [dict(model.only("buffers")) for model in outcome.server.models.values()]
    assert_close(cloud.only("buffers"), average(models, [1, 1, 1]))


def test_a_client_that_was_absent_keeps_its_last_model_on_the_server(tmp_path):
    federation = three_clients()
    rounds = [
        play(FedAMP(LOCAL), federation, tmp_path / str(count), rounds=count, participation=0.3)
        for count in (1, 2)
    ]
    (trained,) = rounds[0].server.models
    assert rounds[1].server.models.keys() > {trained}
    kept = rounds[1].server.models[trained]
    assert encode(kept) == encode(rounds[0].server.models[trained])
