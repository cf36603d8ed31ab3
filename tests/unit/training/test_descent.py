from __future__ import annotations

import pytest
import torch
from tests.helpers import tiny_federation
from torch import Generator

from consort.core.messages import State
from consort.core.params import Params
from consort.errors import ConsortError, Failure, UsageError
from consort.training.client import Client
from consort.training.cohort import Cohort, StackedModel
from consort.training.descent import Descent
from consort.training.local import LocalTraining
from consort.training.objectives import pull_towards


def client_with(**changes):
    federation = tiny_federation(1)
    kept = {
        "id": "c0",
        "model": federation.blueprint("c0").fresh(),
        "tasks": dict(federation.members["c0"].tasks),
        "data": federation.data("c0"),
        "state": State(),
        "generator": Generator().manual_seed(0),
        "round": 1,
        "rounds": 10,
    }
    return Client(**kept | changes)


def one_step(descent: Descent) -> None:
    for batch in descent.batches:
        descent.descend(descent.gradient(batch))


def trained(local, **how):
    client = client_with()
    result = local.run(client, **how)
    return Params.of(client.model), result


@pytest.mark.parametrize(
    "local",
    [
        LocalTraining(lr=0.1, batch=8, epochs=2, momentum=0.9, weight_decay=0.01),
        LocalTraining(lr=0.1, batch=8, optimizer="adam", clip=0.1),
        LocalTraining(lr=0.1, steps=3, batch=8, warmup=1),
    ],
)
def test_one_step_on_every_batch_is_the_usual_training_bit_for_bit(local):
    pull = pull_towards(Params.of(client_with().model), 0.5)
    plain, usual = trained(local, adjust=pull)
    looped, own = trained(local, adjust=pull, loop=one_step)
    assert looped.equals(plain)
    assert own.steps == usual.steps
    assert abs(own.loss - usual.loss) < 1e-6


def test_several_steps_on_every_batch():
    """With one batch, three steps on it are three epochs."""

    def three_steps(descent):
        for batch in descent.batches:
            for _ in range(3):
                descent.descend(descent.gradient(batch))

    looped, own = trained(LocalTraining(lr=0.1, batch=100), loop=three_steps)
    epochs, _ = trained(LocalTraining(lr=0.1, batch=100, epochs=3))
    assert own.steps == 3
    for name, tensor in looped.items():
        torch.testing.assert_close(tensor, epochs[name], atol=1e-6, rtol=0)


def test_a_gradient_is_taken_where_one_asks_for_it():
    local = LocalTraining(lr=0.1, batch=100)
    found = {}

    def look(descent):
        (batch,) = descent.batches
        start = descent.point
        found["here"] = descent.gradient(batch)
        found["there"] = descent.gradient(batch, at=start * 2.0)
        assert descent.point.equals(start * 2.0)
        found["again"] = descent.gradient(batch, at=start)

    after, _ = trained(local, loop=look)
    assert found["again"].equals(found["here"])
    assert not found["there"].equals(found["here"])
    assert after.equals(Params.of(client_with().model))


def test_points_are_copies():
    def look(descent):
        (batch,) = descent.batches
        before = descent.point
        descent.descend(descent.gradient(batch))
        assert not descent.point.equals(before)
        assert before.equals(Params.of(client_with().model))

    trained(LocalTraining(lr=0.1, batch=100), loop=look)


def test_only_what_is_trained_is_a_part_of_points():
    def look(descent):
        assert set(descent.point) == {"heads.classify.weight", "heads.classify.bias"}
        one_step(descent)

    after, _ = trained(LocalTraining(lr=0.1), loop=look, only=("heads",))
    before = Params.of(client_with().model)
    assert after.only("encoder").equals(before.only("encoder"))
    assert not after.only("heads").equals(before.only("heads"))


def test_further_batches_are_drawn_from_the_same_examples_by_the_generator_of_the_client():
    drawn = []

    def look(descent):
        drawn.append([descent.draw().inputs for _ in range(2)])

    for _ in range(2):
        trained(LocalTraining(batch=8), loop=look)
    known = {tuple(row) for row in client_with().data.train.inputs.tolist()}
    for one, other in zip(*drawn, strict=True):
        assert torch.equal(one, other)
        rows = {tuple(row) for row in one.tolist()}
        assert len(rows) == 8
        assert rows <= known
    assert not torch.equal(*drawn[0])


def test_a_loss_that_is_not_finite_is_an_error():
    def look(descent):
        (batch,) = descent.batches
        descent.gradient(batch, at=descent.point * 1e38)

    with pytest.raises(ConsortError, match="lower the learning rate"):
        trained(LocalTraining(batch=100), loop=look)


def test_steps_that_a_protection_replaces_cannot_be_taken_by_a_loop():
    client = client_with(steps=lambda *_, **__: pytest.fail("not asked for steps"))
    with pytest.raises(UsageError, match="loop of its own"):
        LocalTraining().run(client, loop=one_step)


def test_a_cohort_takes_the_usual_steps_only():
    client = client_with()
    cohort = Cohort(
        ids=("c0",),
        model=StackedModel(client.model, Params.of(client.model), 1),
        tasks=client.tasks,
        train=client.data.train,
        generators=[Generator()],
        round=1,
        rounds=1,
    )
    with pytest.raises(Failure, match="cohort_step = false"):
        LocalTraining().run(cohort, loop=one_step)
