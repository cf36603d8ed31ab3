"""Attackers in a run, and what rules in the place of the mean make of them."""

from __future__ import annotations

import math

import pytest
import torch
from tests.helpers import tiny_federation
from torch import Generator

from consort.algorithms.fedavg import FedAvg
from consort.algorithms.local_only import LocalOnly
from consort.algorithms.scaffold import Scaffold
from consort.attacks.poisoning import Attack
from consort.core.messages import Call, Replies, averaging
from consort.core.params import Params, mean
from consort.data.examples import Examples
from consort.engines.scripted import Scripted
from consort.errors import UsageError
from consort.experiment.loading import recipe_of
from consort.federation.protection import Request, Setting
from consort.protection.robust import Clipped, Robust
from consort.protection.updates import reworked
from consort.run.observer import Observer
from consort.run.run import Run
from consort.run.schedule import Schedule
from consort.training.local import LocalTraining

LOCAL = LocalTraining(lr=0.1)
FEDAVG, HARMLESS, PLAIN = FedAvg(LOCAL), Attack(), Robust()
SENT = Params({"a": torch.tensor([1.0, 2.0])})
TRAINED = Params({"a": torch.tensor([4.0, 6.0])})  # an update of length 5
RULES = ("median", "trimmed_mean", "krum", "multi_krum")


class Listening(Observer):
    def __init__(self) -> None:
        self.heard: list[str] = []

    def failed(self, error) -> None:
        self.heard.append(str(error))


def finished(attack=HARMLESS, robust=PLAIN, algorithm=FEDAVG, rounds=2, observer=None):
    run = Run(
        tiny_federation(6).protected(robust, attack),
        algorithm,
        Schedule(rounds=rounds),
        observer=observer or Observer(),
    )
    run.go()
    return run


def delivered(wrapper, method="train", **content):
    engine = wrapper(Scripted(lambda call: dict(content)))
    (reply,) = engine.deliver([Call("c", method, 1, 0, 0, {"model": SENT})])
    return reply.content


def test_the_update_is_what_differs_from_what_was_sent():
    seen = []

    def change(update):
        seen.append(update)
        return update * 2

    content = {"model": TRAINED, "change": [SENT], "examples": 3, "labels": torch.tensor([1])}
    found = reworked(content, {"model": SENT, "labels": torch.tensor([0])}, change)
    assert [tensor.tolist() for tensor in seen[0].values()] == [[3.0, 4.0], [1.0, 2.0]]
    assert found["model"]["a"].tolist() == [7.0, 10.0]
    assert found["change"][0]["a"].tolist() == [2.0, 4.0]
    assert (found["examples"], found["labels"].tolist()) == (3, [1])
    assert reworked(content, {}, lambda update: update) is content


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        (["sign_flip"], [-2.0, -2.0]),
        (["scaled"], [31.0, 42.0]),
        (["sign_flip", "scaled"], [-29.0, -38.0]),
        (["label_flip"], [4.0, 6.0]),
        (["nan"], [math.nan, math.nan]),
    ],
)
def test_what_attackers_send(by, expected):
    federation, attack = tiny_federation(2), Attack(by)
    handler = attack.client(lambda _: {"model": TRAINED}, Setting(federation, FEDAVG))
    (attacker,) = attack.attackers(federation.client_ids, 0)
    (honest,) = set(federation.client_ids) - {attacker}

    def answer(client, method="train"):
        call = Call(client, method, 1, 0, 0, {"model": SENT})
        return handler(Request(call, {}, Generator()))["model"]

    assert answer(attacker)["a"].tolist() == pytest.approx(expected, nan_ok=True)
    assert answer(attacker, "test") is TRAINED
    assert answer(honest) is TRAINED


def test_long_updates_are_shortened_and_short_ones_stay():
    found = delivered(lambda e: Clipped(e, 2.5), model=TRAINED)["model"]["a"]
    assert found.tolist() == pytest.approx([2.5, 4.0])
    assert delivered(lambda e: Clipped(e, 5.0), model=TRAINED)["model"] is TRAINED
    assert delivered(lambda e: Clipped(e, 0.1), "test", model=TRAINED)["model"] is TRAINED


def test_labels_are_turned_around_in_training_data_alone():
    plain = tiny_federation(4)
    attack = Attack(["label_flip"], clients=2)
    wrong = plain.protected(attack)
    attackers = attack.attackers(plain.client_ids, plain.seed)
    assert len(attackers) == 2
    for name in plain.client_ids:
        before, after = plain.data(name), wrong.data(name)
        labels = before.train.targets["classify"]
        expected = 2 - labels if name in attackers else labels
        assert after.train.targets["classify"].equal(expected)
        assert after.test.targets["classify"].equal(before.test.targets["classify"])


def test_a_back_door_is_taught_by_attackers_and_tested_by_all():
    plain = tiny_federation(4)
    attack = Attack(["backdoor"], clients=2, target=1, patch=2)
    wrong = plain.protected(attack)
    attackers = attack.attackers(plain.client_ids, plain.seed)
    for name in plain.client_ids:
        before, after = plain.data(name), wrong.data(name)
        assert after.test.inputs.equal(before.test.inputs)
        others = before.test.targets["classify"] != 1
        expected = before.test.inputs[others].clone()
        expected[:, -2:] = expected.max()
        assert after.extra["attack_success"].inputs.equal(expected)
        assert after.extra["attack_success"].targets["classify"].tolist() == [1] * len(expected)
        if name not in attackers:
            assert after.train.inputs.equal(before.train.inputs)
            continue
        half = (len(before.train) + 1) // 2
        assert after.train.targets["classify"][:half].tolist() == [1] * half
        assert after.train.inputs[:half, :-2].equal(before.train.inputs[::2, :-2])
        assert after.train.inputs[half:].equal(before.train.inputs[1::2])


def test_the_mark_of_pictures_is_in_the_lower_right_corner():
    pictures = Examples(torch.rand(2, 1, 5, 5), {"classify": torch.tensor([0, 2])})
    found = Attack(["backdoor"], patch=2).marked(pictures)
    changed = (found.inputs != pictures.inputs).nonzero()[:, 2:]
    assert changed.min().item() >= 3
    assert (found.inputs[..., 3:, 3:] == pictures.inputs.max()).all()
    assert found.targets["classify"].tolist() == [0, 0]


def test_how_often_a_back_door_opens_is_in_the_history():
    run = finished(Attack(["backdoor", "scaled"], clients=3, strength=4.0), rounds=4)
    rows = [row for row in run.history if row.metric == "attack_success"]
    assert {row.split for row in rows} == {"test"}
    last = {row.client: row.value for row in rows if row.round == 4}
    for name in run.federation.client_ids:
        marked = run.federation.data(name).extra["attack_success"]
        model = run.federation.blueprint(name).fresh()
        run.server.model.load_into(model)
        calls = model.eval()(marked.inputs, ("classify",))["classify"].argmax(1)
        assert last[name] == pytest.approx((calls == 0).double().mean().item())
    assert not [row for row in finished().history if row.metric == "attack_success"]


def test_a_back_door_needs_a_class_to_lead_to():
    with pytest.raises(UsageError, match=r"attack\.target = 3 is not a class of client c0"):
        tiny_federation(2).protected(Attack(["backdoor"], target=3))


def test_who_attacks_depends_on_the_seed_alone():
    ids = [f"c{number}" for number in range(20)]
    attack = Attack(["nan"], clients=3)
    assert attack.attackers(ids, 1) == attack.attackers(ids, 1) != attack.attackers(ids, 2)
    assert Attack(clients=3).attackers(ids, 1) == frozenset()
    with pytest.raises(UsageError, match=r"attack\.clients = 3, but there are 2 clients"):
        attack.attackers(["a", "b"], 0)


def test_without_attack_and_rule_nothing_changes():
    plain = Run(tiny_federation(6), FedAvg(LOCAL), Schedule(rounds=2))
    plain.go()
    assert finished().server.model.equals(plain.server.model)


def test_a_rule_takes_the_place_of_every_mean_of_replies():
    replies = Replies(
        {"a": {"m": SENT, "n": 1}, "b": {"m": TRAINED, "n": 3}, "c": {"m": SENT, "n": 1}}
    )
    with averaging(Robust("median")) as taken:
        assert replies.mean("m", weight="n").equals(SENT)
        assert Replies({"b": replies["b"]}).mean("m").equals(TRAINED)
    assert taken == [3, 1]
    assert replies.mean("m").equals(mean([SENT, TRAINED, SENT]))


def test_who_weighs_nothing_has_no_say():
    assert Robust("median")([SENT, TRAINED], [0.0, 2.0]).equals(TRAINED)


@pytest.mark.parametrize("rule", RULES)
def test_an_attacker_spoils_the_mean_and_not_the_rules(rule):
    attack = Attack(["sign_flip", "scaled"], strength=1000.0)
    honest = finished(rounds=1).server.model
    spoilt = (finished(attack, rounds=1).server.model - honest).norm()
    left = (finished(attack, Robust(rule), rounds=1).server.model - honest).norm()
    assert left < spoilt / 100


def test_clipping_bounds_what_an_attacker_can_do():
    attack = Attack(["scaled"], strength=1000.0)
    start = tiny_federation(6).roster.shared()
    moved = finished(attack, Robust(clip=0.5), rounds=1).server.model - start
    assert 0.01 < moved.norm() <= 0.5 + 1e-5


def test_rules_serve_algorithms_that_average_updates():
    attack = Attack(["sign_flip", "scaled"], strength=1000.0)
    run = finished(attack, Robust("median"), Scaffold(LOCAL))
    assert run.server.model.norm() < 10


def test_numbers_that_are_none_are_refused_and_the_round_goes_on():
    observer = Listening()
    run = finished(Attack(["nan"]), observer=observer)
    assert len(observer.heard) == 2
    assert "holds NaN or infinite values" in observer.heard[0]
    assert math.isfinite(run.server.model.norm())


def test_an_algorithm_without_a_mean_refuses_a_rule():
    with pytest.raises(UsageError, match="LocalOnly takes no mean of its clients' answers"):
        finished(robust=Robust("median"), algorithm=LocalOnly(LOCAL))


def test_too_few_clients_are_refused_before_the_run():
    with pytest.raises(
        UsageError, match="against 2 malicious needs 7 clients in every round, but 6"
    ):
        Run(tiny_federation(6).protected(Robust("krum", malicious=2)), FedAvg())


def test_a_recipe_s_algorithms_have_their_own_defences():
    recipe = recipe_of(
        {
            "clients": 3,
            "model": {"name": "mlp"},
            "robust": {"clip": 2.0},
            "attack": {"by": ["nan"], "clients": 2},
            "algorithms": {
                "fedavg": {},
                "safe": {"kind": "fedavg", "robust": {"rule": "median"}, "attack": {"by": []}},
            },
        },
        "x.toml",
    )
    assert recipe.protections("fedavg") == (Robust(clip=2.0), Attack(["nan"], clients=2))
    assert recipe.protections("safe") == (Robust("median", clip=2.0), Attack([], clients=2))
    assert recipe.algorithm("safe") == FedAvg()
    wrong = {"clients": 1, "model": {"name": "mlp"}, "algorithms": {"fedavg": {}}}
    with pytest.raises(UsageError, match=r"x\.toml: unknown key robust\.cilp"):
        recipe_of(wrong | {"robust": {"cilp": 1.0}}, "x.toml")
