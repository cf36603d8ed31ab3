from __future__ import annotations

import pytest
import torch
from tests.contract.helpers import overhear
from tests.helpers import tiny_member, two_task_federation
from tests.values.by_hand import (
    SIZES,
    B,
    C,
    V,
    W,
    assert_close,
    assert_scores,
    average,
    distance,
    initial,
    play,
    scores,
)
from tests.values.test_fedmh import bank
from torch.nn import functional as F

from consort.algorithms.fml import FML
from consort.algorithms.local_only import LocalOnly
from consort.core.wire import tensors_in
from consort.errors import UsageError
from consort.federation.federation import Federation
from consort.federation.participation import cohort
from consort.training.client import Client
from consort.training.local import LocalTraining

LR, STEPS = 0.2, 3
LOCAL = LocalTraining(epochs=STEPS, lr=LR)
COMMON = {"name": "mlp", "hidden": [3]}


def three_unlike_clients():
    """Clients with 12, 20 and 28 examples and one hidden layer of 4, 5 and 6 units."""
    return Federation(
        {
            f"c{n}": tiny_member(f"c{n}", size, model={"name": "mlp", "hidden": [4 + n]})
            for n, size in enumerate(SIZES)
        }
    )


def bare(companion):
    return {name.removeprefix("companion."): tensor for name, tensor in companion.items()}


def common_start(federation):
    return bare(federation.accompanied(COMMON).roster.shared("companion"))


def leaves(weights):
    return {name: tensor.clone().requires_grad_() for name, tensor in weights.items()}


def logits(weights, examples):
    hidden = F.relu(examples.inputs @ weights[W].T + weights[B])
    return hidden @ weights[V].T + weights[C]


def step(weights, grads, limit):
    """One step along a gradient of at most this length."""
    length = torch.cat([g.flatten() for g in grads]).norm()
    scale = min(1.0, limit / float(length))
    pairs = zip(weights.items(), grads, strict=True)
    return {name: tensor.detach() - LR * scale * grad for (name, tensor), grad in pairs}


def mutual(own, common, examples, alpha, beta, limit):
    """Steps of both models at once, each along the gradient of its own loss."""
    for _ in range(STEPS):
        f, g = leaves(own), leaves(common)
        mine, ours, target = logits(f, examples), logits(g, examples), examples.targets["classify"]
        losses = [
            share * F.cross_entropy(student, target)
            + (1 - share)
            * F.kl_div(F.log_softmax(student, 1), F.softmax(teacher, 1), reduction="batchmean")
            for share, student, teacher in ((alpha, mine, ours), (beta, ours, mine))
        ]
        grads = [
            torch.autograd.grad(loss, list(part.values()), retain_graph=True)
            for loss, part in zip(losses, (f, g), strict=True)
        ]
        own, common = step(f, grads[0], limit), step(g, grads[1], limit)
    return own, common


@pytest.mark.parametrize(
    ("alpha", "beta", "clip"),
    [(0.5, 0.5, 10.0), (0.2, 0.9, 10.0), (0.0, 1.0, 10.0), (0.5, 0.5, 0.1)],
)
@pytest.mark.parametrize("share", [1.0, 0.7])
def test_rounds_follow_the_formulas(alpha, beta, clip, share, tmp_path):
    federation = three_unlike_clients()
    algorithm = FML(LOCAL, COMMON, alpha, beta, clip)
    outcome = play(algorithm, federation, tmp_path, rounds=3, participation=share)
    own = {client: initial(federation, client) for client in federation.client_ids}
    common = common_start(federation)
    for round_ in (1, 2, 3):
        sent = []
        for client in cohort(federation.client_ids, share, 0, round_):
            train = federation.data(client).train
            own[client], trained = mutual(own[client], common, train, alpha, beta, clip)
            sent.append(trained)
        common = average(sent, [1] * len(sent))
    assert_close(bare(outcome.server.companion), common)
    for client, state in outcome.states.items():
        assert_close(state["model"] if state else initial(federation, client), own[client])
    assert_scores(scores(outcome, "personal", 3), federation, own)
    assert_scores(scores(outcome, "global", 3), federation, dict.fromkeys(own, common))


def test_with_labels_only_the_own_models_train_alone_bit_for_bit(tmp_path):
    federation = three_unlike_clients()
    local = LocalTraining(epochs=2, lr=LR, batch=8)
    both = play(FML(local, COMMON, 1.0, 1.0), federation, tmp_path / "both", rounds=3)
    alone = play(LocalOnly(local), federation, tmp_path / "alone", rounds=3)
    for client, state in alone.states.items():
        assert both.states[client]["model"].equals(state["model"])


def test_what_the_other_thinks_moves_the_weights(tmp_path):
    federation = three_unlike_clients()
    with_, without = (
        play(FML(LOCAL, COMMON, alpha, 0.5), federation, tmp_path / str(alpha))
        for alpha in (0.5, 1.0)
    )
    for client, state in with_.states.items():
        assert distance(state["model"], without.states[client]["model"]) > 1e-3
    # In its first step the common model hears of no labels but from the others.
    taught = play(FML(LOCAL, COMMON, 1.0, 0.0), federation, tmp_path / "taught").server.companion
    assert distance(bare(taught), common_start(federation)) > 1e-3


def test_only_the_common_model_travels():
    exchanges, _ = overhear(FML(LOCAL, COMMON), three_unlike_clients())
    said = {name for e in exchanges for name, _ in tensors_in([e.call.payload, e.reply.content])}
    assert said == {f"companion.{name}" for name in (W, B, V, C)}
    sizes = {sum(t.numel() for _, t in e.reply.tensors) for e in exchanges if e.reply.tensors}
    assert sizes == {8 * 3 + 3 + 3 * 3 + 3}


def test_both_tasks_of_a_signature_are_mutual():
    federation = Federation({"c0": bank(0)}).accompanied({})
    model, data = federation.blueprint("c0").fresh(), federation.data("c0")
    tasks = dict(federation.members["c0"].tasks)
    client = Client("c0", model, tasks, data, {}, torch.Generator(), 1, 1)
    found = FML(alpha=0.3, beta=0.6).mutual_losses(client, data.train)
    mine, ours = model(data.train.inputs), model.companion(data.train.inputs)
    users = data.train.targets["identify"]
    genuine = users >= 0
    p, q = mine["detect"].sigmoid(), ours["detect"].sigmoid()
    coin = [
        (t * (t / s).log() + (1 - t) * ((1 - t) / (1 - s)).log()).mean()
        for s, t in ((p, q), (q, p))
    ]
    dice = [
        F.kl_div(s.log_softmax(1), t.softmax(1), reduction="batchmean")
        for s, t in (
            (mine["identify"], ours["identify"]),
            (ours["identify"], mine["identify"]),
        )
    ]
    known = [F.cross_entropy(o["identify"][genuine], users[genuine]) for o in (mine, ours)]
    real = data.train.targets["detect"].float()
    told = [F.binary_cross_entropy(chance, real) for chance in (p, q)]
    expected = {
        task: 0.3 * label[0] + 0.7 * other[0] + 0.6 * label[1] + 0.4 * other[1]
        for task, label, other in (("identify", known, dice), ("detect", told, coin))
    }
    assert found.keys() == expected.keys()
    for task, loss in expected.items():
        torch.testing.assert_close(found[task], loss)


def unlike_banks():
    return Federation({f"c{n}": bank(n, hidden=4 + n) for n in range(3)})


def common_losses(outcome):
    """By round: the mean test loss of the common model in identification."""
    kind = ("loss", "test", "global", "identify")
    rows = [r for r in outcome.rows if (r.metric, r.split, r.model, r.task) == kind]
    return {n: sum(r.value for r in rows if r.round == n) / 3 for n in {r.round for r in rows}}


def test_unlike_banks_teach_the_common_model_whose_signature_it_is(tmp_path):
    local = LocalTraining(lr=0.3, batch=8)
    losses = common_losses(play(FML(local), unlike_banks(), tmp_path, rounds=10))
    assert losses[10] < losses[1] - 0.1


def test_other_tasks_are_refused():
    with pytest.raises(UsageError, match="clients c0 and c1 differ"):
        FML().start(two_task_federation().roster)
    with pytest.raises(UsageError, match="no option 'hiden'"):
        FML(companion={"name": "mlp", "hiden": [3]}).start(three_unlike_clients().roster)
