"""FedHCA² with our ideas, each against what it says; without any, the published one bit for bit."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from tests.contract.helpers import overhear
from tests.values.by_hand import play
from tests.values.test_fedhca2 import (
    LOCAL,
    Played,
    Present,
    _decoded_encoder,  # noqa: F401, makes the model known
    common_update,
    ends,
    federation,
    flat,
)

from consort.aggregation.conflict_averse import conflict_averse_factors
from consort.aggregation.cross_attention import attention
from consort.algorithms.fedavg_parts import FedAvgParts, place, travelling
from consort.algorithms.fedhca2 import FedHCA2
from consort.algorithms.fedhca2_plus import FedHCA2Plus, stage
from consort.algorithms.local_only import LocalOnly
from consort.params import Params
from consort.wire import encode, tensors_in

OFF = {
    "together": 0.0,
    "choose": False,
    "temperature": 0.0,
    "stages": False,
    "cosine": False,
    "per_step": False,
    "guard": False,
    "initial": 0.1,
    "hyper_lr": 0.01,
}


def test_without_its_ideas_it_is_the_published_one_bit_for_bit(tmp_path):
    ours = play(FedHCA2Plus(LOCAL, **OFF), federation(), tmp_path / "ours", rounds=3)
    published = play(FedHCA2(LOCAL), federation(), tmp_path / "theirs", rounds=3)
    assert encode(ends(ours)) == encode(ends(published))
    assert ours.server.weights == published.server.weights


def test_every_layer_of_an_encoder_has_a_weight_that_is_learnt_from_cosines():
    algorithm = FedHCA2Plus(
        LOCAL, together=0.0, hyper_lr=0.1, hyper_momentum=0.0, hyper_decay=0.0, guard=False
    )
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
    played = Played(FedHCA2Plus(LOCAL, together=0.0), members, rounds=1)
    steps = {e.call.client: e.reply.content.get("steps") for e in played.exchanges[:2]}
    assert len(set(steps.values())) == 2
    servers, moves = played.servers, played.moves(1)
    mean = sum(steps.values()) / 2
    scaled = {client: move * (mean / steps[client]) for client, move in moves.items()}
    torch.testing.assert_close(flat(servers[1].common), common_update(scaled), atol=2e-6, rtol=1e-5)


def test_who_was_set_back_takes_half_as_much_from_now_on():
    algorithm = FedHCA2Plus(LOCAL, together=0.0, initial=0.3)
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
    algorithm = FedHCA2Plus(LOCAL, together=0.0, initial=0.0, hyper_lr=0.0)
    exchanges, _ = overhear(algorithm, federation(), rounds=2)
    found = [e.reply.content["setback"] for e in exchanges if "setback" in e.reply.content]
    assert found == [0.0] * 3


def test_at_first_it_is_fedavg_of_parts(tmp_path):
    algorithm = FedHCA2Plus(LOCAL, together=1.0, choose=False)
    ours = play(algorithm, federation(), tmp_path / "ours", rounds=3)
    plain = play(FedAvgParts(LOCAL), federation(), tmp_path / "plain", rounds=3)
    for client, model in plain.server.models.items():
        found = ours.server.owed[client]["start"]
        torch.testing.assert_close(flat(found), flat(model), atol=2e-6, rtol=1e-5)


def test_while_there_is_one_model_the_server_holds_nothing_else():
    played = Played(FedHCA2Plus(LOCAL, together=1.0), rounds=2)
    for server in played.servers[1:]:
        held = {id(tensor): tensor.numel() for _, tensor in tensors_in(vars(server))}
        starts = [owed["start"] for owed in server.owed.values()]
        places = {place(name, t): t.numel() for model in starts for name, t in model.items()}
        assert sum(held.values()) == sum(places.values())


def test_who_is_absent_at_first_finds_the_common_model():
    here = Present(FedHCA2Plus(LOCAL, together=1.0))
    after = here.round(here.start, 1, ("c0", "c2"))
    found = after.owed["c1"]["start"]
    initial = travelling(here.federation.roster.model("c1"))
    assert found.keys() == initial.keys()
    assert found.only("encoder").equals(after.owed["c0"]["start"].only("encoder"))
    assert not found.only("encoder").equals(initial.only("encoder"))


def test_who_is_absent_when_models_part_goes_on_from_the_common_one():
    here = Present(FedHCA2Plus(LOCAL, together=0.2, initial=0.3))
    one = here.round(here.start, 1)
    apart = here.round(one, 2, ("c0", "c2"))
    assert apart.owed["c1"].keys() == {"start"}
    assert apart.owed["c1"] is one.owed["c1"]
    assert apart.owed["c0"].keys() == {"added", "shares", "round"}


def test_models_that_have_parted_stay_apart_in_a_run_that_is_made_longer():
    here = Present(FedHCA2Plus(LOCAL, together=0.1))
    apart = here.round(here.start, 2)
    longer = FedHCA2Plus(LOCAL, together=1.0)
    assert "start" not in longer.round(apart, here.clients(3)).owed["c0"]


def test_the_model_that_takes_nothing_from_others_is_trained_alone_bit_for_bit(tmp_path):
    ours = play(FedHCA2Plus(LOCAL), federation(), tmp_path / "ours", rounds=3)
    alone = play(LocalOnly(LOCAL), federation(), tmp_path / "alone", rounds=3)
    for client, state in alone.states.items():
        found = ours.states[client]["alone"]
        assert encode(Params({n: found[n] for n in state["model"]})) == encode(state["model"])


def test_clients_use_the_model_that_their_validation_data_prefer():
    """With all examples in one batch, what else is trained in between does not matter."""
    local = replace(LOCAL, batch=1000)
    ways = FedHCA2Plus(local), FedHCA2Plus(local, choose=False), LocalOnly(local)
    chosen, shared, alone = map(last_losses, ways)
    assert {alone[client] < shared[client] for client in chosen} == {True, False}
    for client, found in chosen.items():
        assert found == pytest.approx(min(shared[client], alone[client]), abs=1e-5)


def last_losses(algorithm):
    exchanges, _ = overhear(algorithm, federation(), rounds=3)
    scores = {e.call.client: e.reply.content["personal"] for e in exchanges if e.call.evaluation}
    return {
        client: sum(task["loss"] for task in found["validation"]["tasks"].values())
        for client, found in scores.items()
    }


def test_nothing_that_moved_has_no_direction():
    product = torch.zeros(2, 2, dtype=torch.float64)
    assert FedHCA2Plus().slope(product, 0) == 0.0
    product[0, 0], product[1, 1], product[0, 1], product[1, 0] = 4.0, 9.0, -3.0, -3.0
    assert FedHCA2Plus().slope(product, 0) == pytest.approx(0.5)


def test_factors_do_not_depend_on_steps_that_are_the_same():
    _, servers = overhear(FedHCA2Plus(LOCAL, together=0.0), federation(), rounds=1)
    _, plain = overhear(FedHCA2Plus(LOCAL, together=0.0, per_step=False), federation(), rounds=1)
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
