from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.helpers import (
    INPUTS,
    TWO_TASKS,
    assert_same,
    linear_examples,
    normed_model,
    tiny_federation,
)
from torch import Generator

from consort.core.messages import State
from consort.core.params import Params
from consort.data.examples import Examples, Splits
from consort.errors import Failure, UsageError
from consort.tasks import Classification
from consort.training.client import Client
from consort.training.local import LocalTraining
from consort.training.mode import moving, use_running_statistics_for_one
from consort.training.objectives import gradients_of_sum, pull_towards, shift_by, task_losses
from consort.training.scoring import BATCH

CLASSIFY = {"classify": Classification(3)}


def client_with(train=None, tasks=None, model=None, round=1, rounds=10, seed=0):
    """A client with the tiny model, or with another; the same shuffles for the same seed."""
    federation = tiny_federation(1, tasks or {"classify": 3})
    data = federation.data("c0")
    return Client(
        id="c0",
        model=model or federation.blueprint("c0").fresh(),
        tasks=dict(federation.members["c0"].tasks),
        data=Splits(train, data.validation, data.test) if train is not None else data,
        state=State(),
        generator=Generator().manual_seed(seed),
        round=round,
        rounds=rounds,
    )


def numbered(count):
    """Examples that can be recognised by their first input."""
    inputs = torch.zeros(count, INPUTS)
    inputs[:, 0] = torch.arange(count)
    return Examples(inputs, {"classify": torch.arange(count) % 3})


def numbers_in(batch):
    return batch.inputs[:, 0].long().tolist()


def by_hand(client, local, seed=0, extra=lambda name, value: 0.0):
    """Plain SGD on the batches that the client's generator gives."""
    model, generator = client.model, Generator().manual_seed(seed)
    train = client.data.train
    for _ in range(local.epochs):
        order = torch.randperm(len(train), generator=generator)
        for indices in order.split(local.batch):
            loss = sum(
                torch.nn.functional.cross_entropy(output, train.targets[task][indices])
                for task, output in model(train.inputs[indices]).items()
            )
            model.zero_grad()
            loss.backward()
            with torch.no_grad():
                for name, parameter in model.named_parameters():
                    parameter -= local.lr * (parameter.grad + extra(name, parameter))
    return Params.of(model)


def assert_close(found, expected, tolerance=1e-6):
    assert found.keys() == expected.keys()
    assert (found - expected).norm() < tolerance


# Steps


@pytest.mark.parametrize("tasks", [{"classify": 3}, TWO_TASKS])
def test_training_is_plain_descent_on_shuffled_batches(tasks):
    local = LocalTraining(epochs=3, batch=7, lr=0.1)
    client = client_with(tasks=tasks)
    trained = local.run(client)
    found = Params.of(client.model)
    assert trained.steps == 3 * math.ceil(30 / 7)
    assert_close(found, by_hand(client_with(tasks=tasks), local))


def test_the_loss_told_is_the_mean_over_the_steps():
    local = LocalTraining(epochs=2, batch=10, lr=0.0)
    client = client_with()
    per_batch = [
        sum(loss.item() for loss in task_losses(client, batch).values())
        for batch in local.batches(client.data.train, Generator().manual_seed(0))
    ]
    assert local.run(client).loss == pytest.approx(sum(per_batch) / 6, abs=1e-6)


def test_every_run_starts_with_a_new_optimiser():
    local = LocalTraining(steps=1, batch=30, lr=0.1, momentum=0.9)
    first, twice = client_with(), client_with()
    local.run(first)
    start = Params.of(first.model)
    local.run(twice)
    local.run(twice)
    plain = LocalTraining(steps=1, batch=30, lr=0.1)
    plain.run(first)
    assert_close(Params.of(twice.model), Params.of(first.model))
    assert (Params.of(twice.model) - start).norm() > 0.01


def test_the_same_generator_gives_the_same_bits_and_another_does_not():
    def trained(seed):
        client = client_with(seed=seed)
        LocalTraining(batch=7, lr=0.1).run(client)
        return Params.of(client.model)

    assert_same(trained(3), trained(3))
    assert not trained(3).equals(trained(4))


# Batches


@given(st.integers(1, 40), st.integers(1, 50), st.integers(1, 4), st.integers(0, 9))
def test_every_epoch_covers_every_example_exactly_once(count, batch, epochs, seed):
    generator = Generator().manual_seed(seed)
    local = LocalTraining(epochs=epochs, batch=batch)
    found = [numbers_in(b) for b in local.batches(numbered(count), generator)]
    per_epoch = math.ceil(count / batch)
    assert len(found) == epochs * per_epoch
    for epoch in range(epochs):
        parts = found[epoch * per_epoch : (epoch + 1) * per_epoch]
        assert all(len(part) == batch for part in parts[:-1])
        assert sorted(number for part in parts for number in part) == list(range(count))


@given(st.integers(1, 20), st.integers(1, 25), st.integers(1, 30))
def test_so_many_steps_are_the_beginning_of_as_many_epochs_as_needed(count, batch, steps):
    def batches(local):
        return [numbers_in(b) for b in local.batches(numbered(count), Generator().manual_seed(1))]

    some = batches(LocalTraining(steps=steps, batch=batch, epochs=7))
    assert len(some) == steps
    assert some == batches(LocalTraining(epochs=steps + 1, batch=batch))[:steps]


def test_epochs_are_shuffled_anew_and_targets_stay_with_their_inputs():
    local = LocalTraining(epochs=2, batch=50)
    first, second = local.batches(numbered(40), Generator().manual_seed(0))
    assert numbers_in(first) != numbers_in(second)
    assert numbers_in(first) != list(range(40))
    for batch in (first, second):
        assert [number % 3 for number in numbers_in(batch)] == batch.targets["classify"].tolist()


# Hooks


def test_an_objective_may_add_a_term_of_its_own():
    weight = "encoder.layers.0.weight"

    def with_decay(client, batch):
        squares = client.model.encoder.layers[0].weight.square().sum()
        return task_losses(client, batch) | {"decay": 0.5 * squares}

    local = LocalTraining(epochs=2, batch=10, lr=0.1)
    client = client_with()
    local.run(client, objective=with_decay)

    def decay(name, value):
        return value if name == weight else 0.0

    assert_close(Params.of(client.model), by_hand(client_with(), local, extra=decay))


def test_a_client_of_two_tasks_moves_as_two_clients_and_towards_gradients_that_agree():
    """FedHCA², Theorem 1: after two steps of one batch, apart by rate² · ½ ∇⟨g_i, g_j⟩, i ≠ j."""
    rate = 1e-4
    known = linear_examples("theorem", 20, TWO_TASKS)
    inputs, truth = known.inputs.double(), known.targets

    def encoder_after(tasks, steps):
        client = client_with(Examples(inputs, {task: truth[task] for task in tasks}), TWO_TASKS)
        client.tasks = {name: client.tasks[name] for name in tasks}
        client.model.double()
        LocalTraining(lr=rate, batch=20, steps=steps).run(client)
        return Params.of(client.model).only("encoder")

    start = encoder_after(TWO_TASKS, 0)
    together = encoder_after(TWO_TASKS, 2) - start
    apart = [encoder_after([task], 2) - start for task in TWO_TASKS]

    client = client_with(tasks=TWO_TASKS)
    model = client.model.double()
    params = list(model.encoder.parameters())
    outputs = model(inputs, client.tasks)
    losses = [task.loss(outputs[name], truth[name]) for name, task in client.tasks.items()]
    one, other = (torch.autograd.grad(loss, params, create_graph=True) for loss in losses)
    agreement = sum((g * h).sum() for g, h in zip(one, other, strict=True))
    expected = torch.autograd.grad(agreement, params)
    found = [(together - apart[0] - apart[1])[name] / rate**2 for name in together]
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-3)
    assert max(float(theirs.abs().max()) for theirs in expected) > 1e-3


def test_a_rule_of_its_own_may_combine_the_gradients_of_the_tasks():
    seen = []

    def first_task_only(losses, names, params):
        seen.append((list(losses), list(names)))
        return gradients_of_sum({"colour": losses["colour"]}, names, params)

    local = LocalTraining(batch=10, lr=0.1)
    client = client_with(tasks=TWO_TASKS)
    before = Params.of(client.model)
    local.run(client, gradients=first_task_only)
    after = Params.of(client.model)
    assert seen == [(["colour", "shape"], list(before))] * 3
    assert_same(after.only("heads.shape"), before.only("heads.shape"))
    assert not after.only("heads.colour").equals(before.only("heads.colour"))


def test_adjust_sees_names_values_and_gradients_and_has_the_last_word():
    seen = []

    def stand_still(names, values, grads):
        seen.append(list(names))
        assert not any(value.requires_grad for value in values)
        assert [v.shape for v in values] == [g.shape for g in grads]
        return [torch.zeros_like(grad) for grad in grads]

    client = client_with()
    before = Params.of(client.model)
    LocalTraining(batch=10).run(client, adjust=stand_still)
    assert seen == [list(before)] * 3
    assert_same(Params.of(client.model), before)


@pytest.mark.parametrize(
    ("only", "moved"),
    [
        (("encoder",), {"encoder"}),
        (("heads",), {"heads.colour", "heads.shape"}),
        (("encoder", "heads.colour"), {"encoder", "heads.colour"}),
        ((), {"encoder", "heads.colour", "heads.shape"}),
    ],
)
def test_only_the_roles_that_are_named_move(only, moved):
    client = client_with(tasks=TWO_TASKS)
    before = Params.of(client.model)
    LocalTraining(lr=0.1).run(client, only=only)
    after = Params.of(client.model)
    for role in ("encoder", "heads.colour", "heads.shape"):
        still = after.only(role).equals(before.only(role))
        assert still is (role not in moved)
    assert all(parameter.requires_grad for parameter in client.model.parameters())


def test_frozen_parts_are_free_again_after_an_error():
    client = client_with()

    def failing(client, batch):
        assert not client.model.encoder.layers[0].weight.requires_grad
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        LocalTraining().run(client, objective=failing, only=("heads",))
    assert all(parameter.requires_grad for parameter in client.model.parameters())


def test_what_moves_is_named_in_the_order_of_the_model():
    with moving(client_with(tasks=TWO_TASKS).model, ("heads.shape", "encoder")) as (names, params):
        assert names == [
            "encoder.layers.0.weight",
            "encoder.layers.0.bias",
            "heads.shape.weight",
            "heads.shape.bias",
        ]
        assert all(parameter.requires_grad for parameter in params)


def test_a_model_that_was_being_tested_is_trained_in_training_mode():
    client = client_with()
    client.model.eval()
    with moving(client.model, ()):
        assert client.model.training


def test_pull_and_shift_leave_what_they_do_not_name():
    names = ["encoder.w", "heads.t.b"]
    values = [torch.tensor([1.0, 2.0]), torch.tensor([5.0])]
    grads = [torch.tensor([0.5, 0.5]), torch.tensor([0.25])]
    part = Params({"encoder.w": torch.tensor([3.0, -2.0])})
    pulled = pull_towards(part, 0.1)(names, values, grads)
    torch.testing.assert_close(pulled, [torch.tensor([0.3, 0.9]), torch.tensor([0.25])])
    shifted = shift_by(part)(names, values, grads)
    torch.testing.assert_close(shifted, [torch.tensor([3.5, -1.5]), torch.tensor([0.25])])
    assert_same(grads, [torch.tensor([0.5, 0.5]), torch.tensor([0.25])])


# Gradients


def test_the_gradient_of_the_sum_is_that_of_autograd_to_the_bit():
    client = client_with(tasks=TWO_TASKS)
    params = list(client.model.parameters())
    names = [name for name, _ in client.model.named_parameters()]
    losses = task_losses(client, client.data.train)
    expected = torch.autograd.grad(sum(losses.values()), params, retain_graph=True)
    assert_same(list(gradients_of_sum(losses, names, params)), list(expected))


def test_parameters_that_no_loss_depends_on_have_a_zero_gradient():
    client = client_with(tasks=TWO_TASKS)
    params = list(client.model.parameters())
    names = [name for name, _ in client.model.named_parameters()]
    colour = {"colour": task_losses(client, client.data.train)["colour"]}
    expected = torch.autograd.grad(
        colour["colour"], params, retain_graph=True, allow_unused=True, materialize_grads=True
    )
    found = gradients_of_sum(colour, names, params)
    assert_same(list(found), list(expected))
    unused = [grad for name, grad in zip(names, found, strict=True) if "shape" in name]
    assert len(unused) == 2
    assert not any(grad.any() for grad in unused)


def test_gradients_are_not_left_in_the_parameters():
    client = client_with()
    LocalTraining().run(client)
    assert all(parameter.grad is None for parameter in client.model.parameters())


def test_a_clipped_step_is_no_longer_than_the_limit():
    client = client_with()
    before = Params.of(client.model)
    local = LocalTraining(steps=1, batch=30, lr=1.0)
    local.run(client)
    free = Params.of(client.model) - before
    assert free.norm() > 0.1
    clipped_client = client_with()
    LocalTraining(steps=1, batch=30, lr=1.0, clip=0.01).run(clipped_client)
    clipped = Params.of(clipped_client.model) - before
    assert clipped.norm() == pytest.approx(0.01, rel=1e-3)
    assert_close(clipped, free * (0.01 / free.norm()), 1e-5)


def test_what_is_clipped_is_the_adjusted_gradient():
    client = client_with()
    before = Params.of(client.model)
    far = before + before * 1000
    local = LocalTraining(steps=1, batch=30, lr=1.0, clip=0.5)
    local.run(client, adjust=pull_towards(far, 1.0))
    assert (Params.of(client.model) - before).norm() == pytest.approx(0.5, rel=1e-3)


def test_task_weights_scale_losses_and_gradients():
    client = client_with(tasks=TWO_TASKS)
    losses = task_losses(client, client.data.train)
    weighted = LocalTraining(task_weights={"shape": 0.25}).weighted(losses)
    assert weighted["colour"].item() == losses["colour"].item()
    assert weighted["shape"].item() == 0.25 * losses["shape"].item()
    before = Params.of(client.model)

    def step(weights):
        own = client_with(tasks=TWO_TASKS)
        LocalTraining(steps=1, batch=30, lr=1.0, task_weights=weights).run(own)
        return Params.of(own.model) - before

    halves = step({"colour": 1.0, "shape": 0.0}) * 0.5 + step({"colour": 0.0, "shape": 1.0}) * 3.0
    assert_close(step({"colour": 0.5, "shape": 3.0}), halves)


# The loss of a model, and the best of several


@torch.no_grad()
def cross_entropy(model, examples):
    """Written out: the mean over examples of what the right class lacks."""
    output = model(examples.inputs)["classify"].double()
    right = output.gather(1, examples.targets["classify"][:, None])[:, 0]
    return float((output.exp().sum(1).log() - right).mean())


@pytest.mark.parametrize("count", [1, BATCH, 2 * BATCH + 50])
def test_the_loss_is_the_mean_over_all_examples(count):
    client, examples = client_with(), linear_examples("others", count)
    found = LocalTraining().loss(client, examples)
    assert found == pytest.approx(cross_entropy(client.model, examples), abs=1e-6)


def test_the_loss_of_several_tasks_is_their_weighted_sum():
    client = client_with(tasks=TWO_TASKS)
    losses = task_losses(client, client.data.train)
    weights = {"colour": 0.5, "shape": 3.0}
    expected = sum(weight * losses[task].item() for task, weight in weights.items())
    found = LocalTraining(task_weights=weights).loss(client, client.data.train)
    assert found == pytest.approx(expected, abs=1e-6)


def test_the_loss_is_that_of_the_model_as_it_is_tested():
    client = client_with(model=normed_model())
    client.model.train()
    found = LocalTraining().loss(client, client.data.validation)
    client.model.eval()
    assert found == pytest.approx(cross_entropy(client.model, client.data.validation), abs=1e-6)
    client.model.train()
    assert abs(found - cross_entropy(client.model, client.data.validation)) > 0.005


def test_statistics_that_are_recomputed_are_those_of_the_training_data():
    client = client_with(model=normed_model("recompute"))
    found = LocalTraining().loss(client, client.data.validation)
    encoder = client.model.encoder
    own = encoder.layer(client.data.train.inputs)
    normal = (encoder.layer(client.data.validation.inputs) - own.mean(0)) / (
        own.var(0) + encoder.norm.eps
    ).sqrt()
    features = (normal * encoder.norm.weight + encoder.norm.bias).relu()
    output = client.model.heads["classify"](features)
    target = client.data.validation.targets["classify"]
    expected = torch.nn.functional.cross_entropy(output, target).item()
    assert found == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e38])
def test_a_loss_that_is_no_number_is_infinite(bad):
    client = client_with()
    spoilt = Params.of(client.model)
    (spoilt | {"heads.classify.weight": torch.full((3, 16), bad)}).load_into(client.model)
    assert LocalTraining().loss(client, client.data.train) == math.inf


def test_without_examples_there_is_no_loss():
    client = client_with()
    assert LocalTraining().loss(client, client.data.train.rows(0, 0)) == 0.0


@pytest.mark.parametrize("batchnorm", ["average", "local", "recompute"])
def test_looking_at_the_loss_leaves_no_trace_in_training(batchnorm):
    def trained(looks):
        torch.manual_seed(0)
        client = client_with(model=normed_model(batchnorm))
        for _ in range(looks):
            LocalTraining().loss(client, client.data.validation)
        LocalTraining(batch=8, lr=0.1).run(client)
        return Params.of(client.model)

    assert_same(trained(2), trained(0))


def good_at(task):
    client = client_with(tasks=TWO_TASKS)
    weights = dict.fromkeys(TWO_TASKS, 0.0) | {task: 1.0}
    LocalTraining(epochs=30, lr=0.3, task_weights=weights).run(client)
    return Params.of(client.model)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_the_model_with_the_smallest_loss_is_chosen_and_loaded(number):
    start = Params.of(client_with(tasks=TWO_TASKS).model)
    models = [start, good_at("colour"), good_at("shape")]
    for best, weights in ((1, {"shape": 0.0}), (2, {"colour": 0.0})):
        turned = models[number:] + models[:number]
        client = client_with(tasks=TWO_TASKS)
        found = LocalTraining(task_weights=weights).choose(client, turned, client.data.train)
        assert turned[found] is models[best]
        assert_same(Params.of(client.model), models[best])


def test_of_equal_models_the_first_is_chosen():
    client = client_with()
    model = Params.of(client.model)
    assert LocalTraining().choose(client, [model * 1e25, model, model], client.data.train) == 1
    assert_same(Params.of(client.model), model)
    assert LocalTraining().choose(client, [model] * 3, client.data.train.rows(0, 0)) == 0


def test_where_no_loss_is_a_number_the_first_model_is_chosen():
    client = client_with()
    models = [Params.of(client.model) * factor for factor in (1e25, 1e26)]
    assert LocalTraining().choose(client, models, client.data.train) == 0
    assert_same(Params.of(client.model), models[0])


# The rate


def test_a_constant_rate_is_constant():
    assert {LocalTraining(lr=0.3).rate(round_, 5) for round_ in range(1, 6)} == {0.3}


def test_the_cosine_schedule_falls_from_the_rate_towards_nothing():
    local = LocalTraining(lr=0.4, schedule="cosine")
    found = [local.rate(round_, 4) for round_ in (1, 2, 3, 4)]
    half = math.sqrt(0.5)
    assert found == pytest.approx([0.4, 0.2 * (1 + half), 0.2, 0.2 * (1 - half)])


def test_the_exponential_schedule_multiplies_every_round():
    local = LocalTraining(lr=0.8, schedule="exponential", decay=0.5)
    assert [local.rate(round_, 9) for round_ in (1, 2, 3, 4)] == [0.8, 0.4, 0.2, 0.1]


@pytest.mark.parametrize(
    ("schedule", "after"),
    [
        ("constant", [1.0, 1.0, 1.0]),
        ("exponential", [1.0, 0.5, 0.25]),
        ("cosine", [1.0, 0.75, 0.25]),
    ],
)
def test_warming_up_comes_before_the_schedule(schedule, after):
    local = LocalTraining(lr=1.0, schedule=schedule, warmup=3, decay=0.5)
    found = [local.rate(round_, 6) for round_ in range(1, 7)]
    assert found == pytest.approx([0.25, 0.5, 0.75, *after])


def test_tuning_has_the_full_rate_whatever_the_schedule_has_left_of_it():
    local = LocalTraining(lr=0.4, schedule="cosine", warmup=2, steps=3)
    assert local.rate(50, 50) < 0.001
    assert local.tuning(5).rate(50, 50) == 0.4
    assert (local.tuning(5).epochs, local.tuning(5).steps) == (5, None)


def test_the_rate_of_the_round_is_the_one_used():
    def step(round_):
        client = client_with(round=round_, rounds=4)
        before = Params.of(client.model)
        LocalTraining(steps=1, batch=30, lr=0.8, schedule="exponential", decay=0.5).run(client)
        return Params.of(client.model) - before

    assert_close(step(3), step(1) * 0.25)


# What can go wrong


def test_one_example_is_enough_for_a_model_with_batchnorm():
    client = client_with(linear_examples("one", 1), model=normed_model())
    statistics = {name: buffer.clone() for name, buffer in client.model.named_buffers()}
    before = Params.of(client.model)
    assert LocalTraining(epochs=2, lr=0.1).run(client).steps == 2
    assert_same(dict(client.model.named_buffers()), statistics)
    assert not Params.of(client.model).equals(before)


def test_only_the_single_example_left_over_uses_the_running_statistics():
    client = client_with(linear_examples("five", 5), model=normed_model())
    modes = []

    def noting(client, batch):
        modes.append((len(batch), client.model.training))
        return task_losses(client, batch)

    LocalTraining(epochs=2, batch=2).run(client, objective=noting)
    assert modes == [(2, True), (2, True), (1, False)] * 2


def test_the_mode_follows_the_size_of_the_batch():
    model = normed_model()
    use_running_statistics_for_one(model, numbered(1))
    assert not model.training
    assert not model.encoder.norm.training
    use_running_statistics_for_one(model, numbered(2))
    assert model.training
    assert model.encoder.norm.training


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_loss_that_is_no_number_ends_training_and_says_when_and_what_to_do(bad):
    inputs = torch.full((4, INPUTS), bad)
    client = client_with(Examples(inputs, numbered(4).targets), round=7)
    with pytest.raises(Failure, match=r"became nan in round 7: lower .* \(local\.lr = 0\.25\)"):
        LocalTraining(lr=0.25).run(client)


def test_a_rate_that_is_too_large_is_noticed():
    client = client_with()
    with pytest.raises(Failure, match=r"in round 1: lower the learning rate \(local\.lr = 1e\+30"):
        LocalTraining(epochs=5, lr=1e30).run(client)


def test_one_head_alone_may_move():
    client = client_with(tasks=TWO_TASKS)
    before = Params.of(client.model)
    LocalTraining(lr=0.1).run(client, only=("heads.shape",))
    after = Params.of(client.model)
    assert after.without("heads.shape").equals(before.without("heads.shape"))
    assert not after.only("heads.shape").equals(before.only("heads.shape"))


def test_without_examples_there_are_no_steps():
    nothing = linear_examples("c0", 4).rows(0, 0)
    assert list(LocalTraining(steps=3).batches(nothing, torch.Generator())) == []


def test_rates_that_overflow_are_told():
    for settings in ({"lr": 1e39}, {"weight_decay": 1e39}, {"lr": math.inf}):
        with pytest.raises(UsageError, match="is beyond 1e\\+30, more than single precision bears"):
            LocalTraining(**settings)
    growing = LocalTraining(lr=1e20, schedule="exponential", decay=1e200)
    for round_ in (2, 9):
        with pytest.raises(Failure, match=f"the learning rate of round {round_} is more than"):
            growing.rate(round_, 9)
