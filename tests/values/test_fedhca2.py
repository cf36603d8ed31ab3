"""FedHCA² against its formulas, written out in plain PyTorch, and against autograd."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tests.contract.helpers import overhear
from tests.helpers import tiny_member
from tests.values.by_hand import play
from torch import nn

from consort.aggregation.conflict_averse import conflict_averse_factors
from consort.algorithm import Clients
from consort.algorithms.fedhca2 import FedHCA2, Server, travelling
from consort.algorithms.local_only import LocalOnly
from consort.engines.scripted import Scripted
from consort.federation import Federation
from consort.local import LocalTraining
from consort.models.inputs import number_count
from consort.models.registry import ENCODERS
from consort.params import Params
from consort.wire import encode

LOCAL = LocalTraining(lr=0.3, batch=16)
DECODED = {"name": "decoded"}
MEMBERS = {
    "c0": {"tasks": {"colour": 3}},
    "c1": {"tasks": {"shape": 4}},
    "c2": {"tasks": {"colour": 3, "shape": 4}},
}


class Decoded(nn.Module):
    """A layer, and in every decoder a layer with BatchNorm."""

    measure = staticmethod(number_count)

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.layer = nn.Linear(inputs, 6)
        self.norm = nn.BatchNorm1d(6)
        self.width = 5

    def forward(self, inputs):
        return self.norm(self.layer(inputs)).relu()

    def decoder(self):
        return nn.Sequential(nn.Linear(6, self.width), nn.BatchNorm1d(self.width), nn.ReLU())


@pytest.fixture(autouse=True)
def _decoded_encoder(monkeypatch):
    monkeypatch.setitem(ENCODERS, "decoded", f"{__name__}:Decoded")


def federation(members=MEMBERS):
    return Federation(
        {name: tiny_member(name, model=DECODED, **member) for name, member in members.items()}
    )


def models_said(exchanges, rounds=3):
    """What every client received and sent in training, by round."""
    said = [{} for _ in range(rounds)]
    for exchange in exchanges:
        if not exchange.call.evaluation:
            entry = exchange.call.payload["model"], exchange.reply.content["model"]
            said[exchange.call.round - 1][exchange.call.client] = entry
    return said


def flat(params):
    return torch.cat([tensor.double().flatten() for tensor in params.values()])


def deltas(said):
    return {client: after - before for client, (before, after) in said.items()}


def common_update(moves, c=0.4):
    rows = torch.stack([flat(move.only("encoder")) for move in moves.values()])
    return conflict_averse_factors(rows @ rows.T, c) @ rows


def attended_by_hand(moves, client, name):
    """softmax(V Vᵀ / √d) V for the row of one tensor, over all decoders."""
    inside = name.split(".", 2)[2]
    rows, mine = [], None
    for other, move in moves.items():
        for key, tensor in move.only("decoders").items():
            if key.split(".", 2)[2] == inside:
                mine = len(rows) if (other, key) == (client, name) else mine
                rows.append(tensor.double().flatten())
    values = torch.stack(rows)
    weights = torch.softmax(values @ values.T / values.shape[1] ** 0.5, 1)
    return (weights @ values)[mine].reshape(moves[client][name].shape)


def test_what_travels_is_encoder_and_decoders_without_statistics():
    exchanges, servers = overhear(FedHCA2(LOCAL), federation())
    for exchange in exchanges:
        sent = exchange.call.payload["model"]
        assert {name.split(".")[0] for name in sent} == {"encoder", "decoders"}
        assert sent.shapes == travelling(federation().roster.model(exchange.call.client)).shapes
    decoders = [model.only("decoders").size for model in servers[0].models.values()]
    assert decoders == [5 * 6 + 5 + 5 + 5] * 2 + [2 * (5 * 6 + 5 + 5 + 5)]


def test_the_first_rounds_follow_the_formulas():
    algorithm = FedHCA2(LOCAL, hyper_lr=0.5)
    exchanges, servers = overhear(algorithm, federation(), rounds=3)
    said = models_said(exchanges)
    for round_ in range(3):
        moves = deltas(said[round_])
        server = servers[round_ + 1]
        common = common_update(moves)
        torch.testing.assert_close(flat(server.common), common, atol=2e-6, rtol=1e-5)
        for client, (before, _) in said[round_].items():
            weights = server.weights[client]
            expected = flat(before.only("encoder") + moves[client].only("encoder"))
            expected += weights["encoder"] * common
            found = flat(server.models[client].only("encoder"))
            torch.testing.assert_close(found, expected, atol=2e-6, rtol=1e-5)
            for name, tensor in server.models[client].only("decoders").items():
                beta = weights[name.rpartition(".")[0]]
                added = attended_by_hand(moves, client, name)
                expected = before[name].double() + moves[client][name].double() + beta * added
                torch.testing.assert_close(tensor.double(), expected, atol=2e-6, rtol=1e-5)


def test_weights_are_kept_for_the_encoder_and_each_layer_of_each_decoder():
    server = FedHCA2().start(federation().roster)
    assert server.weights["c0"] == dict.fromkeys(
        ["encoder", "decoders.colour.0", "decoders.colour.1"], 0.1
    )
    assert len(server.weights["c2"]) == 5


def test_weights_stay_in_the_first_round_and_then_move_against_their_slope():
    algorithm = FedHCA2(LOCAL, hyper_lr=0.5, hyper_decay=0.01, project=False)
    exchanges, servers = overhear(algorithm, federation(), rounds=3)
    said = models_said(exchanges)
    assert servers[1].weights == servers[0].weights
    speeds = {client: dict.fromkeys(parts, 0.0) for client, parts in servers[0].weights.items()}
    for round_ in (1, 2):
        for client, (before, after) in said[round_].items():
            slopes = slopes_by_autograd(servers[round_], client, before - after)
            for part, weight in servers[round_].weights[client].items():
                speeds[client][part] = 0.9 * speeds[client][part] + slopes[part] + 0.01 * weight
                expected = weight - 0.5 * speeds[client][part]
                found = servers[round_ + 1].weights[client][part]
                assert found == pytest.approx(expected, rel=1e-4, abs=1e-6)
    moved = [abs(w - 0.1) for parts in servers[3].weights.values() for w in parts.values()]
    assert max(moved) > 1e-3


def slopes_by_autograd(server, client, upstream):
    """The gradient of a model by its weights, for a given gradient with respect to the model.

    The update and start of a client are constants here.
    """
    leaves = {
        part: torch.tensor(weight, requires_grad=True)
        for part, weight in server.weights[client].items()
    }
    added = server.common | server.attended[client]
    for name, tensor in added.items():
        part = "encoder" if name.startswith("encoder") else name.rpartition(".")[0]
        (leaves[part].clamp(0, 1) * tensor).backward(upstream[name])
    return {part: float(leaf.grad) for part, leaf in leaves.items()}


def lone(weights, project=False):
    """One client with an encoder and no decoder, after a round in which (1, 2) was added to it."""
    added = Params({"encoder.w": torch.tensor([1.0, 2.0])})
    start = Params({"encoder.w": torch.zeros(2)})
    speeds = {"encoder": 0.0}
    server = Server(
        {"a": start}, {"a": weights}, {"a": speeds}, added, {"a": Params({})}, {"a": "a"}
    )
    algorithm = FedHCA2(LOCAL, hyper_lr=0.1, hyper_decay=0.0, project=project, c=0.0)
    engine = Scripted(lambda call: {"model": Params({"encoder.w": torch.tensor([3.0, -1.0])})})
    return algorithm.round(server, Clients(("a",), 2, 5, 0, engine, 1))


@pytest.mark.parametrize(
    ("weight", "new", "used"),
    [(5.0, 5.0, 1.0), (-1.0, -1.0, 0.0), (0.5, 0.6, 0.6), (0.95, 1.05, 1)],
)
def test_weights_are_used_cut_to_the_unit_interval_and_outside_of_it_have_no_slope(
    weight, new, used
):
    """⟨(1, 2), (3, -1)⟩ = 1, so a weight inside grows by the rate."""
    server = lone({"encoder": weight})
    assert server.weights["a"]["encoder"] == pytest.approx(new)
    expected = torch.tensor([3.0, -1.0]) * (1 + used)
    torch.testing.assert_close(server.models["a"]["encoder.w"], expected)


def test_projected_weights_do_not_leave_the_unit_interval():
    assert lone({"encoder": 0.95}, project=True).weights["a"]["encoder"] == 1.0


def test_without_weights_everybody_trains_alone(tmp_path):
    off = FedHCA2(LOCAL, initial=0.0, hyper_lr=0.0)
    found = play(off, federation(), tmp_path / "off", rounds=3)
    alone = play(LocalOnly(LOCAL), federation(), tmp_path / "alone", rounds=3)
    for client, state in found.states.items():
        whole = state["own"] | found.server.models[client]
        model = alone.states[client]["model"]
        assert encode(Params({name: whole[name] for name in model})) == encode(model)
    on = play(FedHCA2(LOCAL), federation(), tmp_path / "on", rounds=3)
    assert encode(on.server.models) != encode(found.server.models)


def test_with_no_radius_and_full_weight_the_mean_update_is_added():
    algorithm = FedHCA2(LOCAL, c=0.0, initial=1.0, rescale=0)
    exchanges, servers = overhear(algorithm, federation(), rounds=1)
    moves = deltas(models_said(exchanges, 1)[0])
    mean = torch.stack([flat(move.only("encoder")) for move in moves.values()]).mean(0)
    for client, model in servers[1].models.items():
        start = flat(servers[0].models[client].only("encoder"))
        expected = start + flat(moves[client].only("encoder")) + mean
        torch.testing.assert_close(flat(model.only("encoder")), expected, atol=2e-6, rtol=1e-5)


def test_encoders_of_clients_that_are_alike_take_their_mean_step():
    members = MEMBERS | {"c3": {"tasks": {"colour": 3}}}
    algorithm = FedHCA2(LOCAL, initial=0.0, hyper_lr=0.0)
    exchanges, servers = overhear(algorithm, federation(members), rounds=1)
    moves = deltas(models_said(exchanges, 1)[0])
    mean = (moves["c0"] + moves["c3"]) * 0.5
    start, end = servers[0].models, servers[1].models
    for client in ("c0", "c3"):
        torch.testing.assert_close(
            flat(end[client].only("encoder")),
            flat(start[client].only("encoder") + mean.only("encoder")),
            atol=1e-6,
            rtol=1e-5,
        )
    own = models_said(exchanges, 1)[0]
    assert end["c0"].only("decoders").equals(own["c0"][1].only("decoders"))
    assert end["c1"].equals(own["c1"][1])


def test_who_is_absent_keeps_model_and_weights_and_learns_no_weights_from_old_additions():
    algorithm, members = FedHCA2(LOCAL, hyper_lr=0.5), federation()
    _, servers = overhear(algorithm, members, rounds=1)
    after = servers[1]
    stay = {c: model for c, model in after.models.items() if c != "c1"}

    def moved(call):
        return {"model": call.payload["model"] * 1.1}

    here = (2, 5, 0, Scripted(moved), 3)
    second = algorithm.round(after, Clients(tuple(stay), *here))
    assert second.models["c1"].equals(after.models["c1"])
    assert second.weights["c1"] == after.weights["c1"]
    assert second.weights["c0"] != after.weights["c0"]
    assert second.attended.keys() == {"c0", "c2"}
    third = algorithm.round(second, Clients(("c0", "c1"), *here))
    assert third.weights["c1"] == after.weights["c1"]
    assert not third.models["c1"].equals(after.models["c1"])


def test_nothing_moves_where_nobody_moved():
    algorithm = FedHCA2(replace(LOCAL, lr=0.0), hyper_decay=0.0)
    _, servers = overhear(algorithm, federation(), rounds=2)
    assert encode(servers[2].models) == encode(servers[0].models)
    assert servers[2].weights == servers[0].weights
