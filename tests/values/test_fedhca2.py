"""FedHCA² against its formulas, written out in plain PyTorch, and against autograd."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tests.contract.helpers import overhear
from tests.helpers import raw_bytes, tiny_member
from tests.values.by_hand import play
from torch import nn

from consort.aggregation.conflict_averse import conflict_averse_factors
from consort.algorithms._parts import travelling
from consort.algorithms.fedhca2 import FedHCA2, Server
from consort.algorithms.local_only import LocalOnly
from consort.core.algorithm import Clients
from consort.core.params import Params
from consort.core.plugins import Registered, entries
from consort.core.wire import encode, tensors_in
from consort.engines.embedded import Embedded
from consort.engines.host import ClientHost
from consort.engines.scripted import Scripted
from consort.engines.states import StateStore
from consort.federation.federation import Federation
from consort.models.inputs import number_count
from consort.training.local import LocalTraining

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
    monkeypatch.setitem(entries("models"), "decoded", Registered(f"{__name__}:Decoded"))


def federation(members=MEMBERS, **options):
    return Federation(
        {name: tiny_member(name, model=DECODED, **member) for name, member in members.items()},
        **options,
    )


class Kept(StateStore):
    """Keeps what clients had in every round."""

    def __init__(self):
        super().__init__()
        self.models = {}

    def save(self, client, stamp, state):
        super().save(client, stamp, state)
        self.models[client, stamp[0]] = state["model"]


def part_of(name, parts):
    """The one of these parts that a parameter is in."""
    return max((part for part in parts if f"{name}.".startswith(f"{part}.")), key=len)


def taken(own, owed):
    """What a client makes of its model and what it is owed, every parameter times its share."""
    own, shares = travelling(own), owed.get("shares", {})
    if "start" in owed:
        return own | owed["start"]
    added = {n: (t, shares[part_of(n, shares)]) for n, t in owed["added"].items()}
    return Params({n: torch.add(t, added[n][0], alpha=added[n][1]) for n, t in own.items()})


class Played:
    """Some rounds of an algorithm: all states of the server and all models of clients."""

    def __init__(self, algorithm, members=MEMBERS, rounds=3):
        self.federation, self.store = federation(members), Kept()
        self.exchanges, self.servers = overhear(algorithm, self.federation, rounds, self.store)

    def model(self, client, round_):
        """What a client kept at the end of a round."""
        own = self.store.models.get((client, round_))
        return own or self.federation.roster.model(client)

    def start(self, client, round_):
        """What a client has before it trains in a round, or is tested after the one before."""
        return taken(self.model(client, round_ - 1), self.servers[round_ - 1].owed[client])

    def moves(self, round_):
        """The updates that were sent in a round."""
        return {
            exchange.call.client: exchange.reply.content["update"]
            for exchange in self.exchanges
            if exchange.call.round == round_ and not exchange.call.evaluation
        }


def flat(params):
    return torch.cat([tensor.double().flatten() for tensor in params.values()])


def common_update(moves, c=0.4):
    rows = torch.stack([flat(move.only("encoder")) for move in moves.values()])
    return conflict_averse_factors(rows @ rows.T, c) @ rows / (1 + c**2)


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
    played = Played(FedHCA2(LOCAL), rounds=2)
    for exchange in played.exchanges:
        whole = travelling(played.federation.roster.model(exchange.call.client))
        owed = exchange.call.payload["owed"]
        if exchange.call.round == 1 and not exchange.call.evaluation:
            assert owed.keys() == {"start"}
            assert owed["start"].equals(whole.only("encoder"))
        else:
            assert owed.keys() == {"added", "shares", "round"}
            assert owed["added"].shapes == whole.shapes
        if not exchange.call.evaluation:
            assert exchange.reply.content["update"].shapes == whole.shapes
    assert {name.split(".")[0] for name in whole} == {"encoder", "decoders"}
    decoders = [update.only("decoders").size for update in played.moves(1).values()]
    assert decoders == [5 * 6 + 5 + 5 + 5] * 2 + [2 * (5 * 6 + 5 + 5 + 5)]


def test_the_first_rounds_follow_the_formulas():
    played = Played(FedHCA2(LOCAL, hyper_lr=0.5))
    for round_ in (1, 2, 3):
        moves, server = played.moves(round_), played.servers[round_]
        common = common_update(moves)
        torch.testing.assert_close(flat(server.common), common, atol=2e-6, rtol=1e-5)
        for client, move in moves.items():
            before, weights = played.start(client, round_), server.weights[client]
            assert move.equals(travelling(played.model(client, round_)) - before)
            found = played.start(client, round_ + 1)
            expected = flat(before.only("encoder")) + flat(move.only("encoder"))
            expected += weights["encoder"] * common
            torch.testing.assert_close(flat(found.only("encoder")), expected, atol=2e-6, rtol=1e-5)
            for name, tensor in found.only("decoders").items():
                beta = weights[name.rpartition(".")[0]]
                added = attended_by_hand(moves, client, name)
                expected = before[name].double() + move[name].double() + beta * added
                torch.testing.assert_close(tensor.double(), expected, atol=2e-6, rtol=1e-5)


def test_weights_are_kept_for_the_encoder_and_each_layer_of_each_decoder():
    server = FedHCA2().start(federation().roster)
    assert server.weights["c0"] == dict.fromkeys(
        ["encoder", "decoders.colour.0", "decoders.colour.1"], 0.1
    )
    assert len(server.weights["c2"]) == 5


def test_weights_stay_in_the_first_round_and_then_move_against_their_slope():
    algorithm = FedHCA2(LOCAL, hyper_lr=0.5, hyper_decay=0.01)
    played = Played(algorithm)
    servers = played.servers
    assert servers[1].weights == servers[0].weights
    speeds = {client: dict.fromkeys(parts, 0.0) for client, parts in servers[0].weights.items()}
    for round_ in (1, 2):
        for client, move in played.moves(round_ + 1).items():
            slopes = slopes_by_autograd(servers[round_], client, -move)
            for part, weight in servers[round_].weights[client].items():
                speeds[client][part] = 0.9 * speeds[client][part] + slopes[part] + 0.01 * weight
                expected = min(max(weight - 0.5 * speeds[client][part], 0.0), 1.0)
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


def lone(weights):
    """One client with an encoder and no decoder, after a round in which (1, 2) was added to it."""
    added = Params({"encoder.w": torch.tensor([1.0, 2.0])})
    owed = {"added": added, "shares": weights, "round": 1}
    speeds = {"encoder": 0.0}
    server = Server(
        {"a": owed}, {"a": weights}, {"a": speeds}, added, {"a": Params({})}, {"a": "a"}
    )
    algorithm = FedHCA2(LOCAL, hyper_lr=0.1, hyper_decay=0.0, c=0.0)
    engine = Scripted(lambda call: {"update": Params({"encoder.w": torch.tensor([3.0, -1.0])})})
    return algorithm.round(server, Clients(("a",), 2, 5, 0, engine, 1))


@pytest.mark.parametrize(("weight", "new"), [(0.5, 0.6), (0.95, 1.0)])
def test_weights_move_against_their_slope_and_stay_between_zero_and_one(weight, new):
    """⟨(1, 2), (3, -1)⟩ = 1, so a weight inside grows by the rate."""
    server = lone({"encoder": weight})
    assert server.weights["a"]["encoder"] == pytest.approx(new)
    trained = Params({"encoder.w": torch.tensor([3.0, -1.0])})
    found = taken(trained, server.owed["a"])["encoder.w"]
    torch.testing.assert_close(found, trained["encoder.w"] * (1 + new))


def ends(outcome):
    """The models with which clients of a finished run would go on."""
    owed = outcome.server.owed
    return {c: s["model"] | taken(s["model"], owed[c]) for c, s in outcome.states.items()}


def test_without_weights_everybody_trains_alone(tmp_path):
    off = FedHCA2(LOCAL, initial=0.0, hyper_lr=0.0)
    found = ends(play(off, federation(), tmp_path / "off", rounds=3))
    alone = play(LocalOnly(LOCAL), federation(), tmp_path / "alone", rounds=3)
    for client, state in alone.states.items():
        assert encode(found[client]) == encode(state["model"])
    on = ends(play(FedHCA2(LOCAL), federation(), tmp_path / "on", rounds=3))
    assert encode(on) != encode(found)


def test_with_no_radius_and_full_weight_the_mean_update_is_added():
    played = Played(FedHCA2(LOCAL, c=0.0, initial=1.0), rounds=1)
    moves = played.moves(1)
    mean = torch.stack([flat(move.only("encoder")) for move in moves.values()]).mean(0)
    for client, move in moves.items():
        expected = flat(played.start(client, 1).only("encoder")) + flat(move.only("encoder")) + mean
        found = flat(played.start(client, 2).only("encoder"))
        torch.testing.assert_close(found, expected, atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("weight", [0.0, 0.3])
def test_encoders_of_clients_that_are_alike_take_their_mean_step(weight):
    members = MEMBERS | {"c3": {"tasks": {"colour": 3}}}
    played = Played(FedHCA2(LOCAL, initial=weight, hyper_lr=0.0), members, rounds=1)
    moves = played.moves(1)
    mean = flat(((moves["c0"] + moves["c3"]) * 0.5).only("encoder"))
    common = common_update(moves)
    for client in ("c0", "c3"):
        torch.testing.assert_close(
            flat(played.start(client, 2).only("encoder")),
            flat(played.start(client, 1).only("encoder")) + mean + weight * common,
            atol=1e-6,
            rtol=1e-5,
        )
        decoders = played.start(client, 2).only("decoders")
        for name, tensor in decoders.items():
            seen = weight * attended_by_hand(moves, client, name)
            expected = played.model(client, 1)[name] + seen.float()
            torch.testing.assert_close(tensor, expected, atol=1e-6, rtol=1e-5)
    if weight == 0:
        assert played.start("c1", 2).equals(travelling(played.model("c1", 1)))
        own = travelling(played.model("c0", 1)).only("decoders")
        assert played.start("c0", 2).only("decoders").equals(own)


class Present:
    """Real clients of whom some are asked in a round, with all that they were asked."""

    def __init__(self, algorithm):
        self.algorithm, self.federation, self.store = algorithm, federation(), Kept()
        self.engine = Embedded(ClientHost(self.federation, algorithm, 0, 9, self.store))
        self.start = algorithm.start(self.federation.roster)

    def clients(self, round_, ids=tuple(MEMBERS), evaluation=False):
        return Clients(ids, round_, 9, 0, self.engine, len(MEMBERS), evaluation)

    def round(self, server, round_, ids=tuple(MEMBERS)):
        return self.algorithm.round(server, self.clients(round_, ids))


def test_who_is_absent_gets_later_exactly_what_it_was_owed():
    here = Present(FedHCA2(LOCAL, hyper_lr=0.5))
    first = here.round(here.start, 1)
    third = here.round(here.round(first, 2, ("c0", "c2")), 3, ("c0", "c2"))
    assert third.owed["c1"] is first.owed["c1"]
    assert third.weights["c1"] == first.weights["c1"]
    assert third.weights["c0"] != first.weights["c0"]
    assert third.attended.keys() == {"c0", "c2"}
    fourth = here.round(third, 4)
    before = taken(here.store.models["c1", 1], first.owed["c1"])
    after = travelling(here.store.models["c1", 4])
    alone = Present(FedHCA2(LOCAL, hyper_lr=0.5))
    alone.round(alone.start, 1)
    alone.round(first, 4, ("c1",))
    assert after.equals(travelling(alone.store.models["c1", 4]))
    assert not after.equals(before)
    assert fourth.weights["c1"] == first.weights["c1"]
    assert fourth.owed["c1"]["round"] == 4


def test_an_answer_that_is_lost_has_nothing_added_twice():
    here = Present(FedHCA2(replace(LOCAL, lr=0.0), initial=0.5))
    first = here.round(here.start, 1)
    owed = first.owed["c0"]
    push = Params({name: torch.ones_like(tensor) for name, tensor in owed["added"].items()})
    first = replace(first, owed={"c0": owed | {"added": push}})
    expected = travelling(here.store.models["c0", 1]) + push * 0.5
    here.round(first, 2, ("c0",))  # and nobody hears of it
    assert travelling(here.store.models["c0", 2]).equals(expected)
    here.round(first, 3, ("c0",))
    assert travelling(here.store.models["c0", 3]).equals(expected)


def test_evaluation_can_be_asked_for_any_number_of_times():
    here = Present(FedHCA2(LOCAL))
    server = here.round(here.start, 1)
    scores = [here.algorithm.evaluate(server, here.clients(1, evaluation=True)) for _ in range(3)]
    assert scores[0] == scores[1] == scores[2]
    quiet = Present(FedHCA2(LOCAL))
    quiet.round(quiet.start, 1)
    assert encode(here.round(server, 2)) == encode(quiet.round(server, 2))


def test_the_server_holds_no_model_of_a_client_and_what_is_common_once():
    played = Played(FedHCA2(LOCAL, hyper_lr=0.5))
    server = played.servers[-1]
    kept = {
        raw_bytes(tensor)
        for model in played.store.models.values()
        for tensor in travelling(model).values()
    }
    held = [tensor for _, tensor in tensors_in(vars(server))]
    assert kept
    assert not kept & {raw_bytes(tensor) for tensor in held}
    for owed in server.owed.values():
        assert all(owed["added"][name] is tensor for name, tensor in server.common.items())
    attended = sum(seen.size for seen in server.attended.values())
    distinct = {id(tensor): tensor.numel() for tensor in held}
    assert sum(distinct.values()) == server.common.size + attended


def test_nothing_moves_where_nobody_moved():
    played = Played(FedHCA2(replace(LOCAL, lr=0.0), hyper_decay=0.0), rounds=2)
    for client in MEMBERS:
        assert played.start(client, 3).equals(played.start(client, 1))
    assert played.servers[2].weights == played.servers[0].weights
