"""Two models side by side: what each of them is, what travels, and which one a task is left to."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
import torch
from tests.contract.helpers import overhear
from tests.values.by_hand import play
from tests.values.test_fedhca2 import (
    LOCAL,
    MEMBERS,
    _decoded_encoder,  # noqa: F401, makes the model known
    federation,
    flat,
)

from consort.algorithms.fedavg_per_task import FedAvgPerTask
from consort.algorithms.local_only import LocalOnly
from consort.algorithms.own_or_common import COMMON, OWN, OwnOrCommon
from consort.core.algorithm import Clients
from consort.core.params import Params, mean
from consort.core.wire import encode, tensors_in
from consort.engines.scripted import Scripted

PAIRS = MEMBERS | {"c3": {"tasks": {"colour": 3}}, "c4": {"tasks": {"colour": 3, "shape": 4}}}
KINDS = {"c0": ("c0", "c3"), "c1": ("c1",), "c2": ("c2", "c4")}


def asked(exchanges, round_):
    return {e.call.client: e for e in exchanges if e.call.round == round_ and not e.call.evaluation}


def same(one, other):
    """Whether what two models have in common is equal, bit for bit."""
    names = one.keys() & other.keys()
    assert names
    return encode(one.only(*names)) == encode(other.only(*names))


@pytest.mark.parametrize("batchnorm", ["average", "local", "recompute"])
def test_the_own_model_of_an_only_client_is_trained_alone_bit_for_bit(batchnorm, tmp_path):
    several = federation(batchnorm=batchnorm)
    ours = play(OwnOrCommon(LOCAL), several, tmp_path / "ours", rounds=3)
    alone = play(LocalOnly(LOCAL), several, tmp_path / "alone", rounds=3)
    for client, state in alone.states.items():
        assert same(ours.states[client][OWN], state["model"])


def test_where_nobody_is_alike_the_common_encoder_is_renewed_in_every_round():
    exchanges, servers = overhear(OwnOrCommon(LOCAL), federation(), rounds=3)
    for round_ in (1, 2, 3):
        sent = [e.reply.content["model"] for e in asked(exchanges, round_).values()]
        encoder = mean([model.only("encoder") for model in sent])
        for model in servers[round_].models[COMMON].values():
            torch.testing.assert_close(flat(model), flat(encoder), atol=2e-6, rtol=1e-5)


def test_own_models_of_clients_that_are_alike_are_averaged_in_every_odd_round():
    _, ours = overhear(OwnOrCommon(LOCAL), federation(PAIRS), rounds=3)
    _, plain = overhear(FedAvgPerTask(LOCAL), federation(PAIRS), rounds=1)
    assert ours[1].models[OWN].keys() == {"c0", "c2"}
    for kind, model in ours[1].models[OWN].items():
        assert same(model, plain[1].models[kind])
    assert ours[2].models[OWN] == ours[1].models[OWN]
    assert ours[3].models[COMMON] == ours[2].models[COMMON]
    assert [server.renewed for server in ours] == [
        {OWN: 0, COMMON: 0},
        {OWN: 1, COMMON: 0},
        {OWN: 1, COMMON: 2},
        {OWN: 3, COMMON: 2},
    ]


def test_every_kind_counts_once_in_the_common_encoder():
    exchanges, servers = overhear(OwnOrCommon(LOCAL), federation(PAIRS), rounds=2)
    answers = {c: e.reply.content["model"] for c, e in asked(exchanges, 2).items()}
    means = {kind: mean([answers[c] for c in group]) for kind, group in KINDS.items()}
    encoder = mean([model.only("encoder") for model in means.values()])
    common = servers[2].models[COMMON]
    assert common.keys() == KINDS.keys()
    for kind, model in common.items():
        expected = means[kind] | encoder
        torch.testing.assert_close(flat(model), flat(expected), atol=2e-6, rtol=1e-5)
    assert not common["c1"].without("encoder")


def test_one_model_travels_in_a_round_and_statistics_never():
    several = federation(PAIRS)
    exchanges, _ = overhear(OwnOrCommon(LOCAL), several, rounds=4)
    for round_ in (1, 2, 3, 4):
        for client, exchange in asked(exchanges, round_).items():
            whole = several.roster.model(client).without("buffers")
            encoder = whole.only("encoder")
            sent = [name for name, _ in tensors_in(exchange.reply.content)]
            came = [name for name, _ in tensors_in(exchange.call.payload)]
            if client != "c1":
                assert sorted(sent) == sorted(came) == sorted(whole)
            else:
                assert sorted(sent) == ([] if round_ % 2 else sorted(encoder))
                assert sorted(came) == (sorted(encoder) if round_ % 2 else [])


def round_of(answers, before, round_, ids=tuple(PAIRS)):
    """A round in which clients answer as they are told to."""
    return OwnOrCommon(LOCAL).round(before, Clients(ids, round_, 9, 0, Scripted(answers), 5))


def test_who_was_absent_gets_both_models_that_it_missed():
    started = OwnOrCommon(LOCAL).start(federation(PAIRS).roster)
    several = federation(PAIRS)

    def trained(call):
        model = several.roster.model(call.client).without("buffers")
        moved = Params({n: t + call.round for n, t in model.only(*call.payload["roles"]).items()})
        return {"model": moved, "examples": 1} if call.payload["roles"] else {}

    present = tuple(sorted(PAIRS.keys() - {"c3"}))
    servers = [started]
    for round_ in (1, 2, 3):
        servers.append(round_of(trained, servers[-1], round_, present))
    engine = Scripted(trained)
    OwnOrCommon(LOCAL).round(servers[-1], Clients(tuple(PAIRS), 4, 9, 0, engine, 5))
    news = {call.client: call.payload["models"] for call in engine.calls}
    assert news["c0"].keys() == {OWN}
    assert news["c3"].keys() == {OWN, COMMON}
    assert news["c3"][COMMON] is servers[2].models[COMMON]["c0"]
    assert news["c1"].keys() == set()


@pytest.mark.parametrize(("gains", "together"), [((3.0, -2.0), True), ((1.0, -2.0), False)])
def test_clients_that_are_alike_choose_together_task_by_task(gains, together):
    colour = dict(zip(("c2", "c4"), gains, strict=True))

    def told(call):
        found = {"colour": colour.get(call.client, 0.0), "shape": -colour.get(call.client, 0.0)}
        return {"gains": {t: g for t, g in found.items() if t in PAIRS[call.client]["tasks"]}}

    after = round_of(told, OwnOrCommon(LOCAL).start(federation(PAIRS).roster), 1)
    assert after.chosen == {"c0": [], "c1": [], "c2": ["colour" if together else "shape"]}


def test_a_task_is_left_to_the_model_that_validation_data_preferred():
    """It is judged as it comes, and its scores after the round are those of that model."""
    seen = set()
    for batchnorm, lr in product(("local", "recompute"), (0.5, 1.0)):
        local = replace(LOCAL, lr=lr)
        several = federation(batchnorm=batchnorm)
        exchanges, servers = overhear(OwnOrCommon(local), several, rounds=6)
        alone = scored(overhear(LocalOnly(local), several, rounds=6)[0])
        for client, exchange in asked(exchanges, 6).items():
            told = exchange.reply.content["gains"]
            chosen = servers[6].chosen[client]
            assert chosen == [task for task, gain in told.items() if gain > 0]
            for task in PAIRS[client]["tasks"]:
                unlike = scored(exchanges)[client, 6][task] != alone[client, 6][task]
                assert unlike == (task in chosen)
                seen.add((len(PAIRS[client]["tasks"]), task in chosen))
    assert seen == {(1, True), (1, False), (2, True), (2, False)}


def scored(exchanges):
    """The validation losses of every client after every round."""
    return {
        (e.call.client, e.call.round): {
            task: metrics["loss"]
            for task, metrics in e.reply.content["personal"]["validation"]["tasks"].items()
        }
        for e in exchanges
        if e.call.evaluation
    }


def test_a_gain_is_the_difference_of_the_metric_times_the_examples():
    exchanges, _ = overhear(OwnOrCommon(replace(LOCAL, lr=1.0)), federation(PAIRS), rounds=3)
    first, third = asked(exchanges, 1), asked(exchanges, 3)
    assert set(first["c1"].reply.content["gains"].values()) == {0.0}  # both have just begun
    for exchange in third.values():
        for gain in exchange.reply.content["gains"].values():
            assert gain == pytest.approx(
                round(gain), abs=1e-4
            )  # ten examples, accuracies in tenths
    assert any(any(e.reply.content["gains"].values()) for e in third.values())
    assert not any("gains" in e.reply.content for e in asked(exchanges, 2).values())
