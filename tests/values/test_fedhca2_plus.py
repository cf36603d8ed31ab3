"""FedHCA² with our ideas, each against what it says; without any, the published one."""

from __future__ import annotations

import math

import pytest
import torch
from tests.contract.helpers import overhear
from tests.values.by_hand import play
from tests.values.test_fedhca2 import (
    LOCAL,
    MEMBERS,
    Played,
    _decoded_encoder,  # noqa: F401, makes the model known
    common_update,
    ends,
    federation,
    flat,
)

from consort.aggregation.conflict_averse import conflict_averse_factors
from consort.aggregation.cross_attention import attention
from consort.algorithms._parts import travelling
from consort.algorithms.fedavg_per_task import FedAvgPerTask
from consort.algorithms.fedhca2 import FedHCA2
from consort.algorithms.fedhca2_plus import FedHCA2Plus, stage
from consort.core.algorithm import Clients
from consort.core.params import Params, mean
from consort.engines.embedded import Embedded
from consort.engines.host import ClientHost
from consort.engines.states import StateStore

OFF = {
    "as_one": False,
    "temperature": 0.0,
    "stages": False,
    "cosine": False,
    "per_step": False,
    "guard": False,
    "hyper_lr": 0.01,
}


def test_without_its_ideas_it_is_the_published_one(tmp_path):
    """To the last bits: the server adds to models what there the clients add."""
    ours = play(FedHCA2Plus(LOCAL, **OFF), federation(), tmp_path / "ours", rounds=3)
    published = play(FedHCA2(LOCAL), federation(), tmp_path / "theirs", rounds=3)
    for client, model in ends(published).items():
        torch.testing.assert_close(flat(ends(ours)[client]), flat(model), atol=2e-6, rtol=1e-5)
        weights = ours.server.weights[client]
        assert weights == pytest.approx(published.server.weights[client], abs=1e-6)


def test_clients_that_are_alike_may_each_have_a_model_of_its_own():
    played = Played(FedHCA2Plus(LOCAL, as_one=False), PAIRS, rounds=2)
    assert played.servers[2].weights.keys() == PAIRS.keys()
    for exchange in played.exchanges:
        whole = travelling(played.federation.roster.model(exchange.call.client))
        assert exchange.call.payload["owed"]["start"].shapes == whole.shapes


def test_every_layer_of_an_encoder_has_a_weight_that_is_learnt_from_cosines():
    algorithm = FedHCA2Plus(LOCAL, hyper_lr=0.1, hyper_momentum=0.0, hyper_decay=0.0, guard=False)
    played = Played(algorithm, rounds=2)
    servers, moves = played.servers, played.moves(2)
    for client, weights in servers[1].weights.items():
        assert {"encoder.layer", "encoder.norm"} < weights.keys()
        added = servers[1].common | servers[1].attended[client]
        for part, weight in weights.items():
            pushed, went = flat(added.only(part)), flat(moves[client].only(part))
            cosine = float(pushed @ went / (pushed.norm() * went.norm()))
            expected = min(max(weight + 0.1 * cosine, 0.0), 1.0)
            assert servers[2].weights[client][part] == pytest.approx(expected, abs=1e-5)


def test_encoders_agree_on_what_all_would_do_in_the_same_number_of_steps():
    members = {"c0": {"tasks": {"colour": 3}}, "c1": {"tasks": {"shape": 4}, "train": 90}}
    played = Played(FedHCA2Plus(LOCAL), members, rounds=1)
    steps = {e.call.client: e.reply.content.get("steps") for e in played.exchanges[:2]}
    assert len(set(steps.values())) == 2
    servers, moves = played.servers, played.moves(1)
    usual = sum(steps.values()) / 2
    scaled = {client: move * (usual / steps[client]) for client, move in moves.items()}
    torch.testing.assert_close(flat(servers[1].common), common_update(scaled), atol=2e-6, rtol=1e-5)


def test_who_was_set_back_takes_half_as_much_from_now_on():
    algorithm = FedHCA2Plus(LOCAL, initial=0.3)
    exchanges, servers = overhear(algorithm, federation(), rounds=3)
    setbacks = [
        (e.call.round, e.call.client, e.reply.content.get("setback"))
        for e in exchanges
        if not e.call.evaluation
    ]
    assert all((found is None) == (round_ == 1) for round_, _, found in setbacks)
    for round_, client, found in setbacks[3:]:
        before, after = servers[round_ - 1].weights[client], servers[round_].weights[client]
        halved = after == {part: weight / 2 for part, weight in before.items()}
        assert halved == (found > 0)


def test_a_setback_is_what_was_added_to_the_own_model_and_nothing_else():
    algorithm = FedHCA2Plus(LOCAL, initial=0.0, hyper_lr=0.0)
    exchanges, _ = overhear(algorithm, federation(), rounds=2)
    found = [e.reply.content["setback"] for e in exchanges if "setback" in e.reply.content]
    assert found == [0.0] * 3


NOTHING_OF_OTHERS = {"initial": 0.0, "hyper_lr": 0.0, "guard": False}
PAIRS = MEMBERS | {"c3": {"tasks": {"colour": 3}}, "c4": {"tasks": {"colour": 3, "shape": 4}}}


def test_clients_that_are_alike_have_one_model_which_is_fedavg_within_their_kind(tmp_path):
    ours = FedHCA2Plus(LOCAL, **NOTHING_OF_OTHERS)
    found = play(ours, federation(PAIRS), tmp_path / "ours", rounds=3).server
    plain = play(FedAvgPerTask(LOCAL), federation(PAIRS), tmp_path / "plain", rounds=3).server
    assert {client for client, kind in found.alike.items() if client == kind} == {"c0", "c1", "c2"}
    for client, kind in found.alike.items():
        model = found.owed[client]["start"]
        assert model is found.owed[kind]["start"]
        expected = Params({name: plain.models[kind][name] for name in model})
        torch.testing.assert_close(flat(model), flat(expected), atol=2e-6, rtol=1e-5)


def test_heads_travel_among_clients_that_are_alike_and_statistics_never():
    played = Played(FedHCA2Plus(LOCAL), PAIRS, rounds=2)
    for exchange in played.exchanges:
        client = exchange.call.client
        whole = played.federation.roster.model(client).without("buffers")
        sent = travelling(whole) if client == "c1" else whole
        assert exchange.call.payload["owed"]["start"].shapes == sent.shapes
        if not exchange.call.evaluation:
            assert exchange.reply.content["update"].shapes == sent.shapes


def test_kinds_exchange_as_clients_do_by_their_means():
    played = Played(FedHCA2Plus(LOCAL, initial=0.3, per_step=False), PAIRS, rounds=1)
    moves, (before, after) = played.moves(1), played.servers
    kinds = {"c0": ("c0", "c3"), "c1": ("c1",), "c2": ("c2", "c4")}
    means = {kind: mean([moves[client] for client in group]) for kind, group in kinds.items()}
    common = common_update(means)
    assert after.weights.keys() == after.attended.keys() == kinds.keys()
    torch.testing.assert_close(flat(after.common), common, atol=2e-6, rtol=1e-5)
    for kind, move in means.items():
        step = after.owed[kind]["start"] - before.owed[kind]["start"]
        expected = flat(move.only("encoder")) + 0.3 * common
        torch.testing.assert_close(flat(step.only("encoder")), expected, atol=2e-6, rtol=1e-5)
        for name, tensor in step.only("heads").items():
            torch.testing.assert_close(tensor, move[name], atol=2e-6, rtol=1e-5)


def test_clients_with_more_steps_count_more_among_those_that_are_alike():
    members = {"c0": {"tasks": {"colour": 3}}, "c1": {"tasks": {"colour": 3}, "train": 90}}
    played = Played(FedHCA2Plus(LOCAL, **NOTHING_OF_OTHERS), members, rounds=1)
    steps = {e.call.client: e.reply.content.get("steps") for e in played.exchanges[:2]}
    assert len(set(steps.values())) == 2
    moves, (before, after) = played.moves(1), played.servers
    expected = mean(list(moves.values()), [steps[client] for client in moves])
    found = after.owed["c0"]["start"] - before.owed["c0"]["start"]
    torch.testing.assert_close(flat(found), flat(expected), atol=2e-6, rtol=1e-5)


def test_who_is_absent_finds_what_its_kind_has_learnt_meanwhile():
    algorithm = FedHCA2Plus(LOCAL)
    engine = Embedded(ClientHost(federation(PAIRS), algorithm, 0, 9, StateStore()))
    start = algorithm.start(federation(PAIRS).roster)
    after = algorithm.round(start, Clients(("c1", "c3"), 1, 9, 0, engine, 5))
    assert after.owed["c0"]["start"] is after.owed["c3"]["start"]
    assert not after.owed["c0"]["start"].equals(start.owed["c0"]["start"])
    assert after.owed["c2"] is start.owed["c2"]  # nobody of that kind has answered


def test_factors_do_not_depend_on_steps_that_are_the_same():
    _, servers = overhear(FedHCA2Plus(LOCAL), federation(), rounds=1)
    _, plain = overhear(FedHCA2Plus(LOCAL, per_step=False), federation(), rounds=1)
    torch.testing.assert_close(flat(servers[1].common), flat(plain[1].common))


def test_attention_by_cosine_sees_directions_and_no_lengths():
    rows = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, -2.0]])
    logits = torch.tensor([[1.0, math.sqrt(0.5), 0.0]]) / 0.2
    torch.testing.assert_close(attention(rows, 0.2)[:1], torch.softmax(logits, 1))
    torch.testing.assert_close(attention(rows * 1e-4, 0.2), attention(rows, 0.2))
    assert attention(torch.zeros(3, 2), 0.2).tolist() == [[pytest.approx(1 / 3)] * 3] * 3


def test_a_stage_ends_at_the_first_number_of_a_name():
    assert stage("encoder.stages.2.0.1.weight") == "encoder.stages.2"
    assert stage("encoder.norm.bias") == "encoder.norm"


def test_scaled_updates_have_scaled_factors():
    """The shortcut on the matrix of products is what scaling the updates themselves would give."""
    rows = torch.randn(3, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    scales = torch.tensor([0.5, 1.0, 3.0], dtype=torch.float64)
    whole = rows @ rows.T
    short = scales * conflict_averse_factors(scales[:, None] * whole * scales, 0.4)
    scaled = scales[:, None] * rows
    torch.testing.assert_close(
        short @ rows, conflict_averse_factors(scaled @ scaled.T, 0.4) @ scaled
    )
