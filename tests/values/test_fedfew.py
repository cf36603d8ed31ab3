"""FedFew against rounds written out by hand, and what must hold at its edges."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import pytest
import torch
from tests.contract.helpers import Listener, overhear
from tests.helpers import linear_examples, tiny_federation, tiny_member
from tests.unit.cli.command import consort, write_recipe
from tests.values.by_hand import (
    SIZES,
    LeastSquares,
    assert_close,
    assert_scores,
    descend,
    distance,
    gradient,
    initial,
    loss,
    play,
    scores,
    three_clients,
)

from consort.aggregation.stch_set import set_weights
from consort.algorithms import fedavg
from consort.algorithms.fedfew import FedFew, Server, moved
from consort.core.algorithm import Clients, on_client
from consort.core.messages import Call
from consort.core.params import Params
from consort.core.wire import encode
from consort.data.examples import Examples, Splits
from consort.engines.embedded import Embedded
from consort.engines.host import ClientHost
from consort.engines.states import StateStore
from consort.errors import Failure, UsageError
from consort.federation.federation import Federation
from consort.federation.member import Member
from consort.federation.participation import cohort, happens
from consort.models.registry import ModelSpec
from consort.run.run import Run
from consort.run.schedule import Schedule
from consort.training.local import LocalTraining

LR, EPOCHS = 0.2, 3
LOCAL = LocalTraining(epochs=EPOCHS, lr=LR)
COUNTS = dict(zip(("c0", "c1", "c2"), SIZES, strict=True))
NOTHING = torch.zeros(0, dtype=torch.int64)


def clients_of(federation, algorithm, evaluation=False):
    ids = federation.client_ids
    engine = Embedded(ClientHost(federation, algorithm, 0, 1, StateStore()))
    return Clients(ids, 1, 1, 0, engine, len(ids), evaluation)


def one_round(algorithm, federation, server):
    """The state after a round of all clients that starts from a state of our own."""
    return algorithm.round(server, clients_of(federation, algorithm))


def chosen_by(algorithm, federation, models):
    replies = algorithm.evaluate(Server(models), clients_of(federation, algorithm, True))
    return {client: reply["chosen_model"] for client, reply in replies.items()}


def noted(rows, metric, round_=1):
    """What was noted of a round, by client and part."""
    return {(r.client, r.part): r.value for r in rows if (r.metric, r.round) == (metric, round_)}


# A round by hand


@dataclass(frozen=True)
class ByHand:
    """The same settings, and a round of them in plain PyTorch with batches of all examples."""

    mu: float = 0.2
    loss: str = "running"
    mode: str = "delta"
    server_lr: float = 0.3
    step: str = "shared"

    @property
    def algorithm(self):
        return FedFew(LOCAL, models=2, init="independent", **vars(self))

    def visit(self, model, train):
        """How one model should change for one client, and the loss that counts."""
        before_last = descend(model, train, LR, EPOCHS - 1)
        trained = descend(before_last, train, LR, 1)
        counts = float(loss(before_last if self.loss == "running" else model, train))
        if self.mode == "delta":
            return {name: trained[name] - model[name] for name in model}, counts
        slope = gradient(trained, train)
        return {name: -self.server_lr * slope[name] for name in model}, counts

    def weights(self, table, clients, counted):
        """alpha and w as printed; `counted` are those whose examples are in the total."""
        total = sum(COUNTS[client] for client in counted)
        scales = torch.tensor([COUNTS[client] / total for client in clients], dtype=torch.float64)
        fit = (-scales[:, None] * table / self.mu).exp()
        inverse = 1 / fit.sum(1)
        objective = self.mu * math.log(float(inverse.sum()))
        return inverse / inverse.sum(), fit * inverse[:, None], objective

    def round(self, models, federation, present, counted=None):
        """The models after a round, and the weights."""
        visits = [
            [self.visit(model, federation.data(client).train) for model in models]
            for client in present
        ]
        table = torch.tensor([[value for _, value in row] for row in visits], dtype=torch.float64)
        alpha, w, objective = self.weights(table, present, counted or present)
        counts = alpha[:, None] * w
        if self.step == "full":
            counts = counts / counts.sum(0)
        stepped = [
            {
                name: model[name]
                + sum(float(counts[i, k]) * visits[i][k][0][name] for i in range(len(present)))
                for name in model
            }
            for k, model in enumerate(models)
        ]
        return stepped, (alpha, w, objective)

    def start(self, federation):
        return [dict(model) for model in federation.roster.starts(2)]


SETTINGS = [
    ByHand(loss=loss, mode=mode, step=step)
    for loss in ("running", "received")
    for mode in ("delta", "gradient")
    for step in ("shared", "full")
]
every_setting = pytest.mark.parametrize(
    "hand", SETTINGS, ids=lambda hand: f"{hand.loss} {hand.mode} {hand.step}"
)


def assert_models(found, expected):
    for one, other in zip(found, expected, strict=True):
        assert_close(one, other)


@every_setting
def test_rounds_are_those_of_the_formulas(hand, tmp_path):
    federation = three_clients()
    outcome = play(hand.algorithm, federation, tmp_path, rounds=2)
    models = hand.start(federation)
    for round_ in (1, 2):
        models, (alpha, w, objective) = hand.round(models, federation, federation.client_ids)
        found = noted(outcome.rows, "client_weight", round_)
        expected = dict(zip(((c, "") for c in COUNTS), alpha.tolist(), strict=True))
        assert found == pytest.approx(expected, abs=1e-5)
        found = noted(outcome.rows, "model_weight", round_)
        expected = {(c, str(k)): float(w[i, k]) for i, c in enumerate(COUNTS) for k in (0, 1)}
        assert found == pytest.approx(expected, abs=1e-5)
        found = noted(outcome.rows, "objective", round_)
        assert found == {("", ""): pytest.approx(objective, abs=1e-6)}
    assert_models(outcome.server.models, models)
    assert distance(models[0], models[1]) > 0.1


def test_the_settings_matter():
    """Without this, the test above could pass because all of them mean the same."""
    federation = three_clients()
    ends = [
        hand.round(hand.start(federation), federation, federation.client_ids)[0]
        for hand in SETTINGS
    ]
    for number, one in enumerate(ends):
        assert all(distance(one[0], other[0]) > 1e-4 for other in ends[:number])


def test_the_published_settings_are_the_default(tmp_path):
    federation = three_clients()
    hand = ByHand(mu=0.01)
    start = [initial(federation)] * 3
    found = play(FedFew(LOCAL), federation, tmp_path).server.models
    expected, (_, w, _) = hand.round(start, federation, federation.client_ids)
    assert_models(found, expected)
    assert float((w - 1 / 3).abs().max()) < 1e-6


@pytest.mark.parametrize("share", [0.7, 0.3])
def test_only_those_who_take_part_count(share, tmp_path):
    federation, hand = three_clients(), ByHand(mu=0.1)
    found = play(hand.algorithm, federation, tmp_path, rounds=3, participation=share)
    models = hand.start(federation)
    for round_ in (1, 2, 3):
        present = cohort(federation.client_ids, share, 0, round_)
        models, _ = hand.round(models, federation, present)
    assert_models(found.server.models, models)


@pytest.mark.parametrize(("fault", "event"), [("dropout", "dropout"), ("stragglers", "straggler")])
def test_those_who_do_not_answer_do_not_count(fault, event, tmp_path):
    federation, hand = three_clients(), ByHand(mu=0.1)
    found = play(hand.algorithm, federation, tmp_path, rounds=4, **{fault: 0.4})
    models, cohorts = hand.start(federation), set()
    for round_ in (1, 2, 3, 4):
        present = [c for c in COUNTS if not happens(0.4, 0, round_, c, event)]
        cohorts.add(tuple(present))
        models, _ = hand.round(models, federation, present)
    assert len(cohorts) > 1
    assert_models(found.server.models, models)


# Local training


@dataclass
class Losses:
    """The losses that clients reported in the first round."""

    found: dict[str, list[float]]

    @classmethod
    def of(cls, algorithm, federation):
        exchanges, _ = overhear(algorithm, federation, rounds=1)
        replies = {e.call.client: e.reply.content for e in exchanges if e.call.method == "train"}
        return cls({client: content["losses"] for client, content in replies.items()})


@pytest.mark.parametrize("batch", [8, 32])
@pytest.mark.parametrize("mode", ["running", "received"])
def test_the_loss_is_per_example_whatever_the_batches(mode, batch):
    federation = three_clients()
    local = LocalTraining(epochs=2, lr=0.0, batch=batch)
    found = Losses.of(FedFew(local, models=2, loss=mode, init="independent"), federation).found
    for client in federation.client_ids:
        train = federation.data(client).train
        expected = [float(loss(model, train)) for model in federation.roster.starts(2)]
        assert found[client] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("steps", "counted"), [(2, 2), (3, 3), (5, 3)])
def test_with_so_many_steps_the_last_pass_over_the_data_counts(steps, counted):
    """12 examples are three batches of four; every batch has its own loss, known from one epoch."""
    federation = tiny_federation(1)
    train = federation.data("c0").train.take(torch.arange(12))
    data = federation.data("c0")
    member = replace(
        federation.members["c0"], load=lambda: Splits(train, data.validation, data.test)
    )
    federation = Federation({"c0": member})
    local = LocalTraining(steps=steps, lr=0.0, batch=4)
    seen = []

    @dataclass(frozen=True)
    class Watched(FedFew):
        def run_local(self, client):
            orders = torch.Generator()
            orders.set_state(client.generator.get_state())
            for batch in self.local.batches(train, orders):
                seen.append(float(loss(dict(Params.of(client.model)), batch)))
            return super().run_local(client)

    found = Losses.of(Watched(local, models=1), federation).found["c0"]
    assert len(seen) == steps
    assert found == pytest.approx([sum(seen[-counted:]) / counted], abs=1e-6)


def test_momentum_lasts_for_all_epochs_of_a_model_and_starts_anew_for_the_next(tmp_path):
    federation = three_clients()
    local = LocalTraining(epochs=3, lr=0.1, momentum=0.9)
    found = play(FedFew(local, models=2, mu=1e6), federation, tmp_path).server.models
    start = initial(federation)
    expected = {name: torch.zeros_like(value) for name, value in start.items()}
    for client in federation.client_ids:
        weights, velocity = dict(start), None
        for _ in range(3):
            slope = gradient(weights, federation.data(client).train)
            velocity = slope if velocity is None else {
                name: 0.9 * velocity[name] + slope[name] for name in slope
            }  # fmt: skip
            weights = {name: weights[name] - 0.1 * velocity[name] for name in slope}
        for name, value in start.items():
            expected[name] += (weights[name] - value) / 3 / 2
    for model in found:
        assert_close(model, {name: start[name] + expected[name] for name in start})


@pytest.mark.parametrize("batch", [5, 12, 32])
def test_the_gradient_is_that_of_all_examples_whatever_the_batches(batch):
    federation = three_clients()
    local = LocalTraining(lr=0.0, batch=batch)
    algorithm = FedFew(local, models=1, mode="gradient", server_lr=0.7)
    exchanges, _ = overhear(algorithm, federation, rounds=1)
    for exchange in (e for e in exchanges if e.call.method == "train"):
        slope = gradient(initial(federation), federation.data(exchange.call.client).train)
        (change,) = exchange.reply.content["changes"]
        assert_close(change, {name: -0.7 * value for name, value in slope.items()})


# Special cases


def equal_clients():
    """Clients with equally many examples; with heads of zeros they have equal losses too."""
    model = {"name": "mlp", "hidden": [4]}
    federation = Federation({f"c{n}": tiny_member(f"c{n}", 20, model=model) for n in range(3)})
    start = federation.roster.shared()
    return federation, start | (start.only("heads") * 0.0)


@pytest.mark.parametrize("mode", ["running", "received"])
def test_with_one_model_equal_losses_and_equal_sizes_a_round_is_that_of_fedavg(mode):
    federation, start = equal_clients()
    local = LocalTraining(epochs=1, lr=0.5)
    few = FedFew(local, models=1, loss=mode)
    found = one_round(few, federation, Server([start])).models[0]
    expected = one_round(fedavg.FedAvg(local), federation, fedavg.Server(start)).model
    assert distance(found, expected) < 1e-6
    assert distance(found, start) > 0.01


def test_with_one_model_the_worst_client_counts_most():
    federation, start = equal_clients()
    clients = clients_of(federation, FedFew())
    FedFew(LOCAL, models=1, loss="received").round(Server([start]), clients)
    assert noted(clients.notes, "client_weight").values() == pytest.approx([1 / 3] * 3, abs=1e-5)
    model = descend(start, federation.data("c0").train, 0.5, 20)
    clients = clients_of(federation, FedFew())
    FedFew(LOCAL, models=1, loss="received", mu=0.1).round(Server([Params(model)]), clients)
    losses = {c: float(loss(model, federation.data(c).train)) for c in federation.client_ids}
    expected = torch.tensor([value / 3 / 0.1 for value in losses.values()]).softmax(0)
    found = noted(clients.notes, "client_weight")
    assert list(found.values()) == pytest.approx(expected.tolist(), abs=1e-5)
    assert min(found, key=found.get) == ("c0", "")


@pytest.mark.parametrize("batch", [7, 32])
def test_a_client_alone_with_one_model_just_learns(batch, tmp_path):
    federation = Federation({"c0": three_clients().members["c0"]})
    local = replace(LOCAL, batch=batch)
    few = play(FedFew(local, models=1), federation, tmp_path / "few", rounds=3).server.models[0]
    alone = play(fedavg.FedAvg(local), federation, tmp_path / "alone", rounds=3).server.model
    assert_close(few, alone)
    if batch == 32:
        assert_close(few, descend(initial(federation), federation.data("c0").train, LR, 9))


@pytest.mark.parametrize("init", ["same", "noise", "independent"])
def test_without_a_learning_rate_nothing_changes(init, tmp_path):
    federation = three_clients()
    algorithm = FedFew(LocalTraining(lr=0.0), init=init)
    outcome = play(algorithm, federation, tmp_path, rounds=3)
    assert encode(outcome.server) == encode(algorithm.start(federation.roster))


def test_equal_models_take_a_third_of_a_step_each_or_a_full_one(tmp_path):
    """Of K equal models each gets 1/K of the weights: K shared steps are one full step."""
    federation = three_clients()
    start = federation.roster.shared()
    shared, full = (
        play(FedFew(LOCAL, step=step), federation, tmp_path / step).server.models
        for step in ("shared", "full")
    )
    for one, other in zip(shared, full, strict=True):
        assert_close(one - start, (other - start) / 3)
    assert distance(full[0], start) > 0.01


def test_as_many_models_as_clients_and_more_are_too_many():
    roster = three_clients().roster
    assert len(FedFew(models=3).start(roster).models) == 3
    with pytest.raises(UsageError, match=r"more models \(4\) than clients \(3\): set models to at"):
        FedFew(models=4).start(roster)


# Where the models start


def test_models_start_as_copies():
    roster = three_clients().roster
    models = FedFew(init="same").start(roster).models
    assert len(models) == 3
    assert all(model.equals(roster.shared()) for model in models)


def test_models_start_as_independent_draws():
    roster = three_clients().roster
    models = FedFew(init="independent").start(roster).models
    assert encode(models) == encode(roster.starts(3))
    assert min(distance(models[i], models[j]) for i in range(3) for j in range(i)) > 0.1


def test_models_start_a_little_apart():
    roster = three_clients().roster
    first, *others = FedFew(init="noise").start(roster).models
    drawn = roster.starts(3)
    assert first.equals(drawn[0])
    for model, draw in zip(others, drawn[1:], strict=True):
        assert (model - first - (draw - first) * 0.01).norm() < 1e-6
        assert 0 < distance(model, first) < 0.02


# BatchNorm


@pytest.mark.usefixtures("normed_encoder")
@pytest.mark.parametrize("mode", ["delta", "gradient"])
@pytest.mark.parametrize("step", ["shared", "full"])
def test_statistics_take_a_full_step_and_weights_their_share(mode, step):
    federation = tiny_federation(3, model={"name": "normed"})
    local = LocalTraining(lr=0.1, batch=16)
    algorithm = FedFew(local, models=2, mu=0.05, init="independent", mode=mode, step=step)
    exchanges, (start, end) = overhear(algorithm, federation, rounds=1)
    replies = [e.reply.content for e in exchanges if e.call.method == "train"]
    sizes = torch.tensor([30.0, 31.0, 32.0], dtype=torch.float64)
    table = torch.tensor([reply["losses"] for reply in replies], dtype=torch.float64)
    weights = set_weights(sizes[:, None] / 93 * table, 0.05).gradient
    masses = weights.sum(0)
    assert 0.02 < float(masses.min()) < 0.45
    for k, (before, after) in enumerate(zip(start.models, end.models, strict=True)):
        for name in before:
            full = step == "full" or name.startswith("buffers.")
            whole = float(masses[k]) if full else 1.0
            expected = before[name] + sum(
                float(weights[i, k]) / whole * replies[i]["changes"][k][name] for i in range(3)
            )
            torch.testing.assert_close(after[name], expected, atol=2e-6, rtol=0)
        moves = [reply["changes"][k]["buffers.encoder.norm.running_var"] for reply in replies]
        assert all(float(move.abs().max()) > 0.01 for move in moves)


@pytest.mark.parametrize("mass", [0.0, 1e-320, 1e-60, 1e-40, 1e-31])
def test_statistics_of_a_model_for_which_nobody_counts_stay(mass):
    model = Params({"encoder.w": torch.ones(2), "buffers.encoder.m": torch.ones(2)})
    step = Params({"encoder.w": torch.full((2,), mass), "buffers.encoder.m": torch.zeros(2)})
    assert moved(model, step, mass, full=False).equals(model)
    assert moved(model, step, mass, full=True).equals(model)


@pytest.mark.parametrize("mass", [1e-29, 1e-12, 0.5, 1.0])
def test_statistics_of_a_model_that_hardly_counts_are_those_of_who_uses_it(mass):
    model = Params({"encoder.w": torch.ones(2), "buffers.encoder.m": torch.ones(2)})
    step = Params({"encoder.w": torch.full((2,), mass), "buffers.encoder.m": torch.ones(2) * mass})
    found = moved(model, step, mass, full=False)
    torch.testing.assert_close(found["buffers.encoder.m"], torch.full((2,), 2.0))
    torch.testing.assert_close(found["encoder.w"], torch.full((2,), 1 + mass))
    assert distance(moved(model, step, mass, full=True), model * 2) < 1e-6


@pytest.mark.usefixtures("normed_encoder")
def test_a_hopeless_model_does_not_spoil_its_statistics():
    """At 1e-40 a step in single precision could not be divided by the weights."""
    federation = tiny_federation(3, model={"name": "normed"})
    start = federation.roster.shared()
    for factor in (2.0, 5.0, 20.0, 60.0):
        odd = start | (start.only("heads") * factor)
        for step in ("shared", "full"):
            algorithm = FedFew(LocalTraining(lr=0.01), models=2, mu=0.01 / 3, step=step)
            models = one_round(algorithm, federation, Server([start, odd])).models
            assert all(bool(torch.isfinite(tensor).all()) for m in models for tensor in m.values())


@pytest.mark.usefixtures("normed_encoder")
@pytest.mark.parametrize("mode", ["delta", "gradient"])
def test_a_last_batch_of_one_example_is_no_trouble(mode, tmp_path):
    model = {"name": "normed"}
    federation = Federation({f"c{n}": tiny_member(f"c{n}", 17, model=model) for n in range(2)})
    algorithm = FedFew(LocalTraining(lr=0.1, batch=16), models=2, mode=mode)
    models = play(algorithm, federation, tmp_path).server.models
    assert distance(models[0], federation.roster.shared()) > 1e-3


# Clients that go wrong


def with_train(member, train):
    splits = member.load()
    return replace(member, load=lambda: Splits(train, splits.validation, splits.test))


def assert_went_on_without_c1(federation, tmp_path, counted, **schedule):
    """The models are those of the others, and the history has weights of nobody else."""
    hand = ByHand()
    outcome = play(hand.algorithm, federation, tmp_path, rounds=2, on_error="skip", **schedule)
    models = hand.start(federation)
    for _ in range(2):
        models, _ = hand.round(models, federation, ("c0", "c2"), counted)
    assert_models(outcome.server.models, models)
    assert {client for client, _ in noted(outcome.rows, "client_weight", 2)} == {"c0", "c2"}
    return outcome


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e38])
def test_a_client_whose_loss_is_no_number_is_left_out(value, tmp_path):
    """It was counted before it failed, so its examples are still in the total."""
    members = three_clients().members
    train = members["c1"].load().train
    broken = Examples(torch.full_like(train.inputs, value), train.targets)
    federation = Federation(members | {"c1": with_train(members["c1"], broken)})
    outcome = assert_went_on_without_c1(federation, tmp_path, counted=tuple(COUNTS))
    assert scores(outcome, "personal", 2).keys() == set(COUNTS)


def test_the_user_is_told_whose_loss_is_no_number():
    members = three_clients().members
    train = members["c1"].load().train
    broken = Examples(train.inputs * math.nan, train.targets)
    federation = Federation(members | {"c1": with_train(members["c1"], broken)})
    for mode in ("running", "received"):
        with pytest.raises(Failure, match=r"client c1: the training loss became .* round 1"):
            Run(federation, FedFew(LOCAL, loss=mode), Schedule(1)).go()


@pytest.mark.usefixtures("normed_encoder")
def test_a_received_model_without_a_finite_loss_is_an_error_even_if_training_would_mend_it():
    """In training BatchNorm does not look at its running variance, in a test it does."""
    federation = tiny_federation(3, model={"name": "normed"})
    start = federation.roster.shared()
    odd = start | {"buffers.encoder.norm.running_var": torch.full((6,), -1.0)}
    for mode, fails in (("running", False), ("received", True)):
        host = ClientHost(federation, FedFew(LOCAL, loss=mode), 0, 1, StateStore())
        (reply,) = host.answer([Call("c0", "train", 1, 0, 0, {"models": [start, odd]})])
        assert (reply.error is not None) is fails
    assert "the training loss became inf in round 1" in str(reply.error)


def test_a_client_whose_examples_are_gone_is_left_out(tmp_path):
    members = three_clients().members
    nothing = members["c1"].load().train.take(NOTHING)
    federation = Federation(members | {"c1": with_train(members["c1"], nothing)})
    outcome = assert_went_on_without_c1(federation, tmp_path, counted=("c0", "c2"))
    assert scores(outcome, "personal", 2).keys() == set(COUNTS)


def test_a_client_whose_data_cannot_be_read_any_more_is_left_out(tmp_path):
    def load():
        raise OSError("the disk is gone")

    members = three_clients().members
    federation = Federation(members | {"c1": replace(members["c1"], load=load)})
    outcome = assert_went_on_without_c1(federation, tmp_path, counted=("c0", "c2"))
    assert scores(outcome, "personal", 2).keys() == {"c0", "c2"}


def test_a_client_with_test_examples_alone_is_tested_with_the_first_model(tmp_path):
    members = three_clients().members
    test = members["c1"].load().test
    alone = Splits(test.take(NOTHING), test.take(NOTHING), test)
    federation = Federation(members | {"c1": replace(members["c1"], load=lambda: alone)})
    outcome = play(ByHand().algorithm, federation, tmp_path)
    assert noted(outcome.rows, "chosen_model")["c1", ""] == 0
    tested = {"c1": dict(outcome.server.models[0])}
    assert_scores({"c1": scores(outcome, "personal", 1)["c1"]}, federation, tested)


def test_a_round_of_clients_without_examples_is_skipped(tmp_path):
    members = three_clients().members
    empty = {c: with_train(m, m.load().train.take(NOTHING)) for c, m in members.items()}
    listener = Listener()
    run = Run(Federation(empty), FedFew(LOCAL), Schedule(1), folder=tmp_path, observer=listener)
    run.go()
    assert all(model.equals(run.federation.roster.shared()) for model in run.server.models)
    assert "round 1 is skipped: no client trained the models" in str(listener.failures[0])


def test_a_client_that_fails_after_it_was_counted_is_still_in_the_total(tmp_path):
    @dataclass(frozen=True)
    class Stumbling(FedFew):
        @on_client
        def train(self, client, models):
            if client.id == "c1":
                raise ValueError("the disk is full")
            return super().train(client, models)

    federation, hand = three_clients(), ByHand()
    algorithm = Stumbling(**vars(hand.algorithm))
    outcome = play(algorithm, federation, tmp_path, on_error="skip")
    start = hand.start(federation)
    expected, _ = hand.round(start, federation, ("c0", "c2"), counted=tuple(COUNTS))
    assert_models(outcome.server.models, expected)
    other, _ = hand.round(start, federation, ("c0", "c2"))
    assert max(distance(a, b) for a, b in zip(expected, other, strict=True)) > 1e-4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("mu = 0.0", "key algorithms.fedfew.mu: it should be greater than 0, found 0.0"),
        ("mu = -1.0", "key algorithms.fedfew.mu: it should be greater than 0, found -1.0"),
        ("mu = nan", "key algorithms.fedfew.mu: it should be greater than 0, found nan"),
        ("models = 0", "key algorithms.fedfew.models: it should be greater than or equal to 1"),
        ("init = 'alike'", "key algorithms.fedfew.init: it should be 'same', 'noise' or"),
        ("models = 4", "more models (4) than clients (3): set models to at most 3"),
    ],
)
def test_impossible_settings_are_refused_before_anything_is_run(options, message, tmp_path):
    recipe = write_recipe(tmp_path, more=f"\n[algorithms.fedfew]\n{options}\n")
    out = tmp_path / "out"
    outcome = consort("run", recipe, "--algorithm", "fedfew", "--quiet", "--out", out)
    assert outcome.code == 2
    assert message in outcome.error
    assert not out.exists()


# The choice


def contrary_member():
    """Its validation examples have other labels than its training examples."""
    splits = tiny_member("c0", 40, model={"name": "mlp", "hidden": [4]}).load()
    other = linear_examples("validation", 40)
    turned = Examples(other.inputs, {"classify": (other.targets["classify"] + 1) % 3})
    member = tiny_member("c0", model={"name": "mlp", "hidden": [4]})
    return replace(member, load=lambda: Splits(splits.train, turned, splits.test))


def test_a_client_chooses_on_validation_data_or_on_training_data():
    federation = Federation({"c0": contrary_member()})
    data = federation.data("c0")
    start = initial(federation)
    models = [
        Params(descend(start, examples, 0.5, 200)) for examples in (data.train, data.validation)
    ]
    assert float(loss(models[0], data.train)) < 0.5 * float(loss(models[1], data.train))
    assert float(loss(models[1], data.validation)) < 0.5 * float(loss(models[0], data.validation))
    assert chosen_by(FedFew(models=1), federation, models) == {"c0": 1}
    assert chosen_by(FedFew(models=1, choose_on="train"), federation, models) == {"c0": 0}
    without = Splits(data.train, data.validation.take(NOTHING), data.test)
    federation = Federation({"c0": replace(contrary_member(), load=lambda: without)})
    assert chosen_by(FedFew(models=1), federation, models) == {"c0": 0}
    assert chosen_by(FedFew(models=1), federation, models[::-1]) == {"c0": 1}


def test_the_chosen_model_is_tested_as_received(tmp_path):
    federation = three_clients()
    outcome = play(ByHand().algorithm, federation, tmp_path, rounds=3)
    models = [dict(model) for model in outcome.server.models]
    chosen = {}
    for client in federation.client_ids:
        losses = [float(loss(model, federation.data(client).validation)) for model in models]
        chosen[client] = losses.index(min(losses))
    assert noted(outcome.rows, "chosen_model", 3) == {(c, ""): k for c, k in chosen.items()}
    tested = {client: models[k] for client, k in chosen.items()}
    assert_scores(scores(outcome, "personal", 3), federation, tested)


def test_with_tuning_the_chosen_model_is_tuned(tmp_path):
    federation = three_clients()
    outcome = play(ByHand().algorithm, federation, tmp_path, rounds=2, tuning_epochs=4)
    tuned = {
        client: descend(dict(outcome.server.models[int(k)]), federation.data(client).train, LR, 4)
        for (client, _), k in noted(outcome.rows, "chosen_model", 2).items()
    }
    assert_scores(scores(outcome, "tuned", 2), federation, tuned)


@pytest.mark.parametrize("choose_on", ["validation", "train"])
def test_as_in_the_code_all_models_are_trained_before_the_choice(choose_on, tmp_path):
    federation = three_clients()
    algorithm = replace(ByHand().algorithm, tuning_epochs=4, choose_on=choose_on)
    outcome = play(algorithm, federation, tmp_path, rounds=3)
    chosen, tested = {}, {}
    for client in federation.client_ids:
        data = federation.data(client)
        tuned = [descend(dict(model), data.train, LR, 4) for model in outcome.server.models]
        losses = [float(loss(model, getattr(data, choose_on))) for model in tuned]
        chosen[client, ""] = losses.index(min(losses))
        tested[client] = tuned[chosen[client, ""]]
    assert noted(outcome.rows, "chosen_model", 3) == chosen
    assert_scores(scores(outcome, "personal", 3), federation, tested)


def test_of_equal_models_the_first_is_chosen():
    federation = three_clients()
    start = federation.roster.shared()
    assert set(chosen_by(FedFew(), federation, [start] * 3).values()) == {0}


# Traffic


@pytest.mark.parametrize("models", [1, 3])
def test_all_models_travel_both_ways(models, tmp_path):
    federation = three_clients()
    rows = play(FedFew(LOCAL, models=models), federation, tmp_path).rows
    for metric in ("bytes_down", "bytes_up"):
        for client in federation.client_ids:
            sent = sum(r.value for r in rows if (r.metric, r.client) == (metric, client))
            assert sent == models * 4 * federation.roster.shared().size


# Two groups of clients


def regression_member(truth, seed, size=40):
    """A client that can fit a linear map exactly; another one draws other inputs."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(size, len(truth), generator=generator)
    examples = Examples(inputs, {"fit": inputs @ truth})
    linear = ModelSpec.of({"name": "mlp", "hidden": []})
    return Member.of({"fit": LeastSquares()}, linear, Splits(examples, examples, examples))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_two_groups_of_clients_find_their_two_models(seed):
    truths = torch.randn(2, 10, generator=torch.Generator().manual_seed(seed))
    members = {
        f"{kind}{n}": regression_member(truths[number], 100 * seed + 10 * number + n)
        for number, kind in enumerate("ab")
        for n in range(3)
    }
    algorithm = FedFew(
        LocalTraining(lr=0.5, batch=40),
        models=2,
        mu=0.1 / 6,
        init="independent",
    )
    run = Run(Federation(members, seed), algorithm, Schedule(60, evaluate_every=0))
    chosen = noted(run.go(), "chosen_model", 60)
    of_a, of_b = ({k for (c, _), k in chosen.items() if c.startswith(kind)} for kind in "ab")
    assert len(of_a) == len(of_b) == 1
    assert of_a != of_b
    for (k,), truth in zip((of_a, of_b), truths, strict=True):
        found = run.server.models[int(k)]["heads.fit.weight"][0]
        torch.testing.assert_close(found, truth, atol=1e-3, rtol=0)
