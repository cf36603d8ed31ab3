from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.contract.helpers import overhear
from tests.helpers import assert_same
from tests.values.by_hand import play
from tests.values.test_fedmh import USERS, bank, banks, client_of, signatures, taken

from consort.aggregation.eight_bits import restore, shorten
from consort.algorithms._own_model import MODEL
from consort.algorithms.fedmh_plus import UNSENT, FedMHPlus
from consort.algorithms.lg_fedavg import LGFedAvg
from consort.core.params import Params
from consort.core.wire import tensors_in
from consort.domains.signatures.tasks import Identification, identity, imitation_loss
from consort.federation.federation import Federation
from consort.training.local import LocalTraining
from consort.training.objectives import task_losses
from consort.training.task_weighting import TaskSteps

LOCAL = LocalTraining(epochs=2, lr=0.1, batch=8)
PLAIN = FedMHPlus(LOCAL, imitation=0, eight_bits=False)


# Forgeries that teach


def test_forgeries_cost_what_they_are_taken_for():
    probabilities = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.6, 0.3], [0.2, 0.2, 0.6]])
    target = identity(torch.tensor([0, 1, 2]), torch.tensor([0, 1, 0]))
    expected = (-math.log(1 - 0.5) - math.log(1 - 0.6)) / 2
    assert imitation_loss(probabilities.log(), target).item() == pytest.approx(expected)


def test_a_forgery_that_is_surely_taken_for_the_user_still_has_a_gradient():
    output = torch.tensor([[200.0, 0.0, 0.0]], requires_grad=True)
    loss = imitation_loss(output, identity(torch.tensor([0]), torch.tensor([0])))
    loss.backward()
    assert loss.item() == pytest.approx(200 - math.log(2))
    assert output.grad.tolist() == [[1.0, -0.5, -0.5]]


@pytest.mark.parametrize("users", [1, 3])
def test_without_forgeries_or_without_other_users_nothing_is_lost(users):
    output = torch.randn(4, users, requires_grad=True)
    genuine = torch.tensor([int(users > 1)] * 4)
    loss = imitation_loss(output, identity(torch.zeros(4, dtype=torch.int64), genuine))
    loss.backward()
    assert loss.item() == 0
    assert not output.grad.any()


def test_the_loss_is_added_where_users_are_named():
    client, batch = client_of(bank(0)), signatures(0)
    algorithm = FedMHPlus(LOCAL, imitation=2.0)
    found = TaskSteps("sum", algorithm.loss).losses(client, batch)
    usual = task_losses(client, batch)
    output = client.model(batch.inputs)["identify"]
    more = 2 * imitation_loss(output, batch.targets["identify"])
    assert found["detect"].item() == usual["detect"].item()
    assert found["identify"].item() == pytest.approx((usual["identify"] + more).item())


# Equal pulls


@pytest.mark.parametrize("seed", range(3))
def test_levelled_tasks_pull_equally_hard_and_heads_learn_in_full(seed):
    client, batch = client_of(bank(seed)), signatures(seed)
    steps = TaskSteps("level")
    found = taken(steps, client, batch)
    features = client.model.encoder(batch.inputs)
    losses = {
        name: task.loss(client.model.output(name, features), batch.targets[name])
        for name, task in client.tasks.items()
    }
    pulls = {
        name: torch.autograd.grad(loss, features, retain_graph=True)[0]
        for name, loss in losses.items()
    }
    (weights,) = steps.weights
    lengths = [weights[name] * pull.norm().item() for name, pull in pulls.items()]
    mean = sum(pull.norm().item() for pull in pulls.values()) / 2
    assert lengths == pytest.approx([mean, mean])
    named = dict(client.model.named_parameters())
    weighted = sum(weights[name] * loss for name, loss in losses.items())
    for loss, role in ((weighted, "encoder."), (sum(losses.values()), "heads.")):
        names = [name for name in named if name.startswith(role)]
        grads = torch.autograd.grad(loss, [named[n] for n in names], retain_graph=True)
        for name, grad in zip(names, grads, strict=True):
            torch.testing.assert_close(found[name], grad, atol=1e-6, rtol=1e-5)


def test_levelling_leaves_a_task_without_gradient_alone():
    client, batch = client_of(bank(0)), signatures(0, forged_only=True)
    steps = TaskSteps("level")
    taken(steps, client, batch)
    assert steps.weights == [{"identify": 0.0, "detect": 1.0}]


# Eight bits


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=20))
def test_a_number_of_eight_bits_is_off_by_half_a_unit_at_most(numbers):
    params = Params({"heads.w": torch.tensor(numbers)})
    short = shorten(params)
    assert short["heads.w"]["counts"].dtype == torch.int8
    unit = params["heads.w"].abs().max() / 127
    apart = (restore(short)["heads.w"] - params["heads.w"]).abs()
    assert bool((apart <= unit * (0.5 + 1e-4)).all())


@pytest.mark.parametrize("value", [0.0, 1e-45, 3e38])
def test_tiny_and_huge_numbers_stay_finite(value):
    params = Params({"heads.w": torch.tensor([value, -value])})
    again = restore(shorten(params))["heads.w"]
    assert bool(again.isfinite().all())
    torch.testing.assert_close(again, params["heads.w"], atol=1e-40, rtol=1e-5)


def test_what_rounding_leaves_out_is_sent_later():
    algorithm, client = FedMHPlus(LOCAL), client_of(bank(0))
    common = Params.of(client.model).without("encoder")
    sent, changed = common.zeros(), common.zeros()
    for _ in range(3):
        start = algorithm.received(algorithm.sent(common))
        reply = algorithm.train(client, algorithm.sent(common))
        sent = sent + restore(reply["update"])
        changed = changed + (client.state[MODEL].without("encoder") - start)
    unsent = client.state[UNSENT]
    assert unsent.norm() > 0
    for name, change in changed.items():
        torch.testing.assert_close(sent[name] + unsent[name], change, atol=1e-6, rtol=1e-5)
        largest = shorten(sent)[name]["unit"] * 127
        assert bool((unsent[name].abs() <= largest / 50).all())


def test_heads_travel_in_a_quarter_of_the_bytes(tmp_path):
    federation = banks()
    sizes = {}
    for bits in (True, False):
        outcome = play(FedMHPlus(LOCAL, eight_bits=bits), federation, tmp_path / str(bits))
        sizes[bits] = sum(row.value for row in outcome.rows if row.metric.startswith("bytes"))
    heads = federation.roster.shared("heads")
    assert sizes[False] == 6 * 4 * heads.size
    assert sizes[True] == 6 * (heads.size + 4 * len(heads))


# Rounds


def test_without_its_ideas_it_is_lg_fedavg(tmp_path):
    ours = play(PLAIN, banks(), tmp_path / "ours", rounds=3)
    theirs = play(LGFedAvg(LOCAL), banks(), tmp_path / "theirs", rounds=3)
    for name, tensor in theirs.server.heads.items():
        torch.testing.assert_close(ours.server.heads[name], tensor, atol=1e-5, rtol=1e-4)
    for client, state in theirs.states.items():
        for name, tensor in state[MODEL].items():
            torch.testing.assert_close(
                ours.states[client][MODEL][name], tensor, atol=1e-5, rtol=1e-4
            )


def test_clients_that_do_not_share_train_alone(tmp_path):
    alone = FedMHPlus(LOCAL, share=False, eight_bits=False)
    together = play(alone, banks(3), tmp_path / "three", rounds=3)
    single = play(alone, Federation({"c0": bank(0, hidden=4)}), tmp_path / "one", rounds=3)
    assert_same(together.states["c0"][MODEL], single.states["c0"][MODEL])


def test_encoders_never_travel():
    exchanges, _ = overhear(FedMHPlus(LOCAL), banks())
    for exchange in exchanges:
        tensors = tensors_in([exchange.call.payload, exchange.reply.content])
        sizes = {tensor.numel() for _, tensor in tensors if tensor.dtype == torch.int8}
        assert sizes == {3 * USERS, USERS, 3 * 128, 128, 1} or not sizes


def test_identification_alone_is_taught_by_forgeries():
    algorithm = FedMHPlus(LOCAL)
    output, target = torch.randn(6, USERS), signatures(0, size=6).targets["identify"]
    task = Identification(USERS)
    assert algorithm.loss(task, output, target) > task.loss(output, target)
