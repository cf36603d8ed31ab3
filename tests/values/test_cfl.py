from __future__ import annotations

from itertools import combinations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.values.by_hand import (
    Quadratic,
    assert_close,
    distance,
    play,
    quadratic_member,
    scores,
    three_clients,
)

from consort.algorithms.cfl import CFL, Server, bipartition
from consort.algorithms.fedavg import FedAvg
from consort.core.algorithm import Clients
from consort.core.messages import Replies
from consort.core.params import Params
from consort.engines.scripted import Scripted
from consort.errors import ClientFailed
from consort.federation.federation import Federation
from consort.training.local import LocalTraining

LOCAL = LocalTraining(epochs=3, lr=0.2)
EAST, WEST, NORTH = (1.0, 0.0), (-1.0, 0.0), (0.0, 1.0)


def params(*numbers, statistics=0.0):
    return Params(
        {"encoder.w": torch.tensor(numbers), "buffers.mean": torch.tensor([float(statistics)])}
    )


def replies(updates, examples=1):
    return Replies(
        {client: {"update": params(*u), "examples": examples} for client, u in updates.items()}
    )


def state(clusters, models=None, longest=0.0):
    return Server(models or [params(0.0, 0.0)] * len(clusters), clusters, longest)


def one_round(algorithm, server, updates, examples=None):
    """The state after clients answered with these updates; the others are absent."""
    ids = tuple(sorted(client for members in server.clusters for client in members))

    def answer(call):
        if call.client not in updates:
            raise ClientFailed(call.client, "absent")
        weight = 1 if examples is None else examples[call.client]
        return {"update": params(*updates[call.client]), "examples": weight}

    engine = Scripted(answer)
    return algorithm.round(server, Clients(ids, 1, 1, 0, engine, len(ids))), engine.calls


def across(one, other, updates):
    """The largest similarity of two clients on different sides of a cut."""
    return max(
        float(torch.nn.functional.cosine_similarity(updates[i], updates[j], dim=0))
        for i in one
        for j in other
    )


@given(st.integers(2, 7), st.integers(2, 4), st.integers(0, 9999))
def test_no_other_cut_has_less_similar_sides(count, dimensions, seed):
    generator = torch.Generator().manual_seed(seed)
    vectors = torch.randn(count, dimensions, generator=generator, dtype=torch.float64)
    updates = {f"c{number}": vector for number, vector in enumerate(vectors)}
    answers = {
        client: {"update": Params({"encoder.w": vector}), "examples": 1}
        for client, vector in updates.items()
    }
    one, other = bipartition(Replies(answers))
    assert sorted(one + other) == list(updates)
    assert one
    assert other
    every_cut = [
        (side, set(updates) - set(side))
        for size in range(1, count)
        for side in combinations(updates, size)
    ]
    least = min(across(*cut, updates) for cut in every_cut)
    assert across(one, other, updates) == pytest.approx(least, abs=1e-12)


def test_lengths_do_not_matter_for_the_cut():
    found = bipartition(replies({"a": (9.0, 1.0), "b": (-0.1, 0.02), "c": (0.1, 0.0), "d": WEST}))
    assert found == [["a", "c"], ["b", "d"]]


def test_a_client_that_does_not_move_has_no_direction():
    assert bipartition(replies({"a": EAST, "b": (0.0, 0.0), "c": EAST})) == [["a", "c"], ["b"]]


@pytest.mark.parametrize(
    ("updates", "longest", "split"),
    [
        ({"a": EAST, "b": WEST}, 1.0, True),
        ({"a": EAST, "b": WEST}, 3.9, True),
        ({"a": EAST, "b": WEST}, 4.1, False),  # they moved four times as far before
        ({"a": EAST, "b": (-0.6, 0.0)}, 1.0, True),  # mean 0.2
        ({"a": EAST, "b": (-0.4, 0.0)}, 1.0, False),  # mean 0.3
        ({"a": EAST, "b": NORTH}, 1.0, False),
        ({"a": EAST}, 1.0, False),
        ({"a": (0.0, 0.0), "b": (0.0, 0.0)}, 0.0, False),
    ],
)
def test_a_cluster_is_split_when_it_stands_still_and_its_clients_do_not(updates, longest, split):
    algorithm = CFL(eps1=0.25, eps2=0.25)
    assert algorithm.incongruent(replies(updates), longest) is split


def test_both_limits_are_relative_to_the_updates():
    for scale in (1e-4, 1.0, 1e4):
        updates = {c: (x * scale, y * scale) for c, (x, y) in {"a": EAST, "b": WEST}.items()}
        assert CFL().incongruent(replies(updates), scale)
        assert not CFL().incongruent(replies(updates), 4.1 * scale)


def test_halves_start_from_the_model_of_the_cluster_and_take_their_own_mean():
    server = state([["a", "b", "c", "d"]], [params(10.0, 10.0, statistics=5)], longest=0.5)
    updates = {"a": EAST, "b": WEST, "c": (3.0, 0.1), "d": (-2.5, 0.1)}
    examples = {"a": 1, "b": 1, "c": 3, "d": 1}
    half, calls = one_round(CFL(eps1=0.6), server, updates, examples)
    assert half.clusters == [["a", "c"], ["b", "d"]]
    assert_close(half.models[0], params(10 + (1 + 3 * 3) / 4, 10 + 0.075, statistics=5))
    assert_close(half.models[1], params(10 - (1 + 2.5) / 2, 10 + 0.05, statistics=5))
    assert half.longest == pytest.approx((9 + 0.01) ** 0.5)
    assert all(call.payload["model"] is server.models[0] for call in calls)
    _, calls = one_round(CFL(), half, updates)
    sent = {call.client: call.payload["model"] for call in calls}
    assert all(sent[client] is half.models[0] for client in "ac")
    assert all(sent[client] is half.models[1] for client in "bd")


def test_absent_clients_stay_in_the_larger_half():
    server = state([["a", "b", "c", "d", "e"]])
    after, _ = one_round(CFL(eps1=0.5), server, {"b": WEST, "c": EAST, "e": EAST})
    assert after.clusters == [["a", "c", "d", "e"], ["b"]]
    after, _ = one_round(CFL(), server, {"c": EAST, "d": WEST})
    assert after.clusters == [["a", "b", "c", "e"], ["d"]]


def test_every_cluster_is_judged_on_its_own():
    server = state([["a", "b"], ["c", "d"], ["e"]])
    after, _ = one_round(CFL(), server, {"a": EAST, "b": EAST, "c": EAST, "d": WEST})
    assert after.clusters == [["a", "b"], ["c"], ["e"], ["d"]]
    moved = [model["encoder.w"].tolist() for model in after.models]
    assert moved == [[1.0, 0.0], [1.0, 0.0], [0.0, 0.0], [-1.0, 0.0]]


def test_statistics_count_neither_in_lengths_nor_in_angles():
    noisy = {
        client: {"update": params(*update, statistics=900 * sign), "examples": 1}
        for client, update, sign in (("a", EAST, 1), ("b", WEST, 1), ("c", WEST, -1))
    }
    assert bipartition(Replies(noisy)) == [["a"], ["b", "c"]]
    assert CFL(eps1=0.4).incongruent(Replies(noisy), 1.0)
    assert not CFL(eps1=0.3).incongruent(Replies(noisy), 1.0)


def test_a_client_without_examples_is_as_good_as_absent():
    server = state([["a", "b", "c"]])
    updates = {"a": EAST, "b": (0.0, 0.0), "c": EAST}
    after, _ = one_round(CFL(), server, updates, {"a": 2, "b": 0, "c": 2})
    assert after.clusters == [["a", "b", "c"]]
    after, _ = one_round(CFL(), server, {"b": (0.0, 0.0)}, {"b": 0})
    assert after.models[0] is server.models[0]


@pytest.mark.parametrize("share", [1.0, 0.7])
def test_without_a_split_it_is_fedavg(share, tmp_path):
    federation = three_clients()
    settings = {"rounds": 3, "participation": share}
    outcome = play(CFL(LOCAL, eps1=0.0), federation, tmp_path / "cfl", **settings)
    plain = play(FedAvg(LOCAL), federation, tmp_path / "plain", **settings)
    assert outcome.server.clusters == [["c0", "c1", "c2"]]
    assert_close(outcome.server.models[0], plain.server.model)
    for client, value in scores(plain, "global", 3).items():
        assert scores(outcome, "personal", 3)[client] == pytest.approx(value, abs=1e-5)


def test_two_groups_of_clients_part_and_reach_their_own_optima(tmp_path):
    members = {
        f"{kind}{n}": quadratic_member(seed, 40)
        for seed, kind in ((3, "a"), (4, "b"))
        for n in range(3)
    }
    federation = Federation(members)
    algorithm = CFL(LocalTraining(epochs=10, lr=0.2, batch=40))
    outcome = play(algorithm, federation, tmp_path / "cfl", rounds=20, evaluate_every=0)
    assert outcome.server.clusters == [["a0", "a1", "a2"], ["b0", "b1", "b2"]]
    for kind, model in zip("ab", outcome.server.models, strict=True):
        best = Quadratic.of(members[f"{kind}0"]).best
        found = model["heads.fit.weight"][0].double()
        torch.testing.assert_close(found, best, atol=1e-4, rtol=0)
    assert distance(*outcome.server.models) > 0.1
    noted = {
        row.client: row.value
        for row in outcome.rows
        if (row.metric, row.round) == ("chosen_model", 20)
    }
    assert noted == {client: "ab".index(client[0]) for client in members}


def test_clients_that_agree_stay_together(tmp_path):
    members = {f"a{n}": quadratic_member(1, 40) for n in range(4)}
    algorithm = CFL(LocalTraining(epochs=5, lr=0.2, batch=10))
    outcome = play(algorithm, Federation(members), tmp_path, rounds=20, evaluate_every=0)
    assert outcome.server.clusters == [["a0", "a1", "a2", "a3"]]
