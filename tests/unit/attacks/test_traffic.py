"""A finished run can be overheard: its last round is made again, bit for bit, and left alone."""

from __future__ import annotations

import pytest
import torch
from tests.contract.helpers import make
from tests.helpers import assert_same, tiny_federation

from consort.attacks.traffic import complete_models, replay_last_round, updates
from consort.core.messages import Call, Reply
from consort.core.params import Params
from consort.errors import Failure
from consort.protection.secure.settings import Secure
from consort.run.run import Run
from consort.run.schedule import Schedule


def run_in(folder, name, **settings) -> Run:
    schedule = Schedule(settings.pop("rounds", 2), **settings)
    return Run(tiny_federation(2), make(name), schedule, folder=folder)


def files(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "fedmh", "local_only", "centralised"])
def test_the_last_round_is_made_again_and_nothing_is_changed(tmp_path, name):
    run_in(tmp_path, name).go()
    before = files(tmp_path)
    again = run_in(tmp_path, name)
    client = again.federation.client_ids[0]
    traffic = replay_last_round(again, [client])
    assert traffic.reproduced
    assert traffic.round == 2
    assert {call.client for call, _ in traffic.exchanges} == {client}
    assert files(tmp_path) == before


def test_what_is_heard_is_what_the_server_averaged(tmp_path):
    run = run_in(tmp_path, "fedavg", rounds=1)
    run.go()
    heard = replay_last_round(run, ["c0", "c1"]).exchanges
    one, other = (reply.content for _, reply in heard)
    weights = [one["examples"], other["examples"]]
    total = one["model"] * (weights[0] / sum(weights)) + other["model"] * (
        weights[1] / sum(weights)
    )
    for name, tensor in run.server.model.items():
        torch.testing.assert_close(total[name], tensor)


def test_masked_answers_are_heard_as_such(tmp_path):
    pytest.importorskip("cryptography", reason="pip install 'fedconsort[secure]'")
    pytest.importorskip("Crypto", reason="pip install 'fedconsort[secure]'")
    federation = tiny_federation(3).protected(Secure())
    run = Run(federation, make("fedavg"), Schedule(2), folder=tmp_path)
    run.go()
    traffic = replay_last_round(run, ["c0"])
    assert traffic.reproduced
    assert [call.method for call, _ in traffic.exchanges] == [
        *("secure.keys", "secure.shares", "train", "secure.open"),
    ]
    initial = federation.initial("c0")
    assert not any(updates(call, reply, initial) for call, reply in traffic.exchanges)


def test_clients_that_are_lost_are_not_heard(tmp_path):
    run = run_in(tmp_path, "fedavg", dropout=1.0)
    run.go()
    traffic = replay_last_round(run, ["c0", "c1"])
    assert traffic.exchanges == []
    assert traffic.reproduced


def test_a_run_without_a_finished_round_is_an_error(tmp_path):
    with pytest.raises(Failure, match="no round is finished yet"):
        replay_last_round(run_in(tmp_path, "fedavg"), ["c0"])


def message(payload, content):
    return Call("c0", "train", 1, 0, 0, payload), Reply("c0", content)


def test_models_and_bare_updates_are_told_apart():
    initial = Params({"encoder.w": torch.tensor([1.0, 1.0]), "heads.t.w": torch.tensor([5.0])})
    model = Params({"encoder.w": torch.tensor([3.0, 4.0])})
    sent = Params({"encoder.w": torch.tensor([2.0, 4.0])})
    (found,) = updates(*message({"model": model}, {"model": sent, "examples": 3}), initial)
    assert_same(found.direction, model - sent)
    assert_same(found.model, initial | model)
    assert found.signed
    step = Params({"encoder.w": torch.tensor([-0.1, 0.2])})
    (found,) = updates(*message({"model": model}, {"changes": [step]}), initial)
    assert_same(found.direction, step)
    assert not found.signed


def test_a_model_that_was_not_sent_out_is_compared_with_the_first():
    initial = Params({"encoder.w": torch.ones(2)})
    sent = Params({"encoder.w": torch.tensor([1.5, 1.0])})
    (found,) = updates(*message({}, {"model": sent}), initial)
    assert_same(found.direction, initial - sent)
    assert found.signed


def test_what_is_to_be_added_to_a_model_is_no_model_that_was_trained():
    known = Params({"encoder.w": torch.tensor([3.0, 4.0])})
    added, update = (Params({"encoder.w": torch.tensor([0.1, x])}) for x in (0.2, 0.25))
    (found,) = updates(*message({"owed": {"added": added}}, {"update": update}), known)
    assert_same(found.model, known)
    assert_same(found.direction, update)
    assert not found.signed


def test_models_are_whole_without_statistics_but_not_without_a_head():
    names = ("encoder.w", "heads.t.w", "buffers.encoder.m")
    initial = Params({name: torch.ones(2) for name in names})
    encoder, model = initial.only("encoder"), initial.without("buffers") * 1.1
    content = {"parts": [encoder], "model": model, "update": model * -0.1}
    found = complete_models(*message({}, content), initial)
    assert [list(sent) for sent in found] == [list(model)]


def test_what_fits_no_parameter_is_no_update():
    initial = Params({"encoder.w": torch.ones(2)})
    strange = {
        "prototypes": {"t": {0: torch.ones(2)}},
        "small": Params({"encoder.w": torch.ones(1)}),
    }
    assert updates(*message({}, strange), initial) == []
