from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from consort.errors import UsageError
from consort.training.optimizers import Adam, Sgd, clip_by_norm, make_optimizer

SHAPES = [(4, 3), (3,), (2, 2, 3, 3), ()]
CASES = [
    ("sgd", 0.0, 0.0),
    ("sgd", 0.9, 0.0),
    ("sgd", 0.0, 0.01),
    ("sgd", 0.5, 0.1),
    ("adam", 0.0, 0.0),
    ("adam", 0.0, 0.1),
    ("adamw", 0.0, 0.0),
    ("adamw", 0.0, 0.1),
]


def draw(generator: torch.Generator, shapes=SHAPES) -> list[Tensor]:
    return [torch.randn(shape, generator=generator) for shape in shapes]


def reference(name, params, momentum, weight_decay, lr) -> torch.optim.Optimizer:
    if name == "sgd":
        return torch.optim.SGD(params, lr, momentum=momentum, weight_decay=weight_decay)
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[name]
    return kind(params, lr, weight_decay=weight_decay)


@pytest.mark.parametrize(("name", "momentum", "weight_decay"), CASES)
def test_six_steps_with_changing_rates_equal_those_of_torch_bit_for_bit(
    name, momentum, weight_decay
):
    generator = torch.Generator().manual_seed(5)
    ours = [tensor.requires_grad_() for tensor in draw(generator)]
    theirs = [tensor.detach().clone().requires_grad_() for tensor in ours]
    optimizer = make_optimizer(name, momentum, weight_decay)
    oracle = reference(name, theirs, momentum, weight_decay, 0.1)
    for lr in (0.1, 0.1, 0.05, 0.02, 0.02, 0.3):
        grads = draw(generator)
        for param, grad in zip(theirs, grads, strict=True):
            param.grad = grad.clone()
        oracle.param_groups[0]["lr"] = lr
        oracle.step()
        with torch.no_grad():
            optimizer.step(ours, grads, lr)
        assert all(map(torch.equal, ours, theirs))


@settings(max_examples=15, deadline=None)
@given(
    case=st.sampled_from(CASES),
    lr=st.floats(1e-4, 1.0),
    magnitude=st.sampled_from([0.0, 1e-10, 1.0, 1e6]),
    seed=st.integers(0, 1000),
)
def test_any_rate_and_size_of_gradient_agrees_with_torch(case, lr, magnitude, seed):
    name, momentum, weight_decay = case
    generator = torch.Generator().manual_seed(seed)
    ours = draw(generator)
    theirs = [tensor.clone().requires_grad_() for tensor in ours]
    optimizer = make_optimizer(name, momentum, weight_decay)
    oracle = reference(name, theirs, momentum, weight_decay, lr)
    for _ in range(3):
        grads = [grad * magnitude for grad in draw(generator)]
        for param, grad in zip(theirs, grads, strict=True):
            param.grad = grad.clone()
        oracle.step()
        optimizer.step(ours, grads, lr)
    assert all(map(torch.equal, ours, theirs))


@pytest.mark.parametrize(("name", "momentum", "weight_decay"), CASES)
def test_a_cohort_in_one_tensor_moves_like_its_members_alone(name, momentum, weight_decay):
    generator = torch.Generator().manual_seed(2)
    members = [draw(generator) for _ in range(3)]
    cohort = [torch.stack(parts) for parts in zip(*members, strict=True)]
    together = make_optimizer(name, momentum, weight_decay)
    alone = [make_optimizer(name, momentum, weight_decay) for _ in members]
    for _ in range(3):
        grads = [draw(generator) for _ in members]
        together.step(cohort, [torch.stack(parts) for parts in zip(*grads, strict=True)], 0.1)
        for optimizer, member, grad in zip(alone, members, grads, strict=True):
            optimizer.step(member, grad, 0.1)
    for position, stacked in enumerate(cohort):
        torch.testing.assert_close(
            stacked, torch.stack([member[position] for member in members]), rtol=0, atol=1e-7
        )


@pytest.mark.parametrize(("name", "momentum", "weight_decay"), CASES)
def test_gradients_stay_as_they_are_and_may_be_reused_by_the_caller(name, momentum, weight_decay):
    generator = torch.Generator().manual_seed(4)
    params, grads = draw(generator), draw(generator)
    twins, kept = [param.clone() for param in params], [grad.clone() for grad in grads]
    busy = make_optimizer(name, momentum, weight_decay)
    calm = make_optimizer(name, momentum, weight_decay)
    for _ in range(3):
        busy.step(params, grads, 0.1)
        assert all(map(torch.equal, grads, kept))
        calm.step(twins, [grad.clone() for grad in kept], 0.1)
        torch._foreach_zero_(grads)
        torch._foreach_copy_(grads, kept)
    assert all(map(torch.equal, params, twins))


def test_plain_sgd_is_one_subtraction_and_keeps_no_state():
    param, grad = torch.tensor([1.0, 2.0]), torch.tensor([4.0, -4.0])
    optimizer = Sgd()
    optimizer.step([param], [grad], 0.25)
    assert torch.equal(param, torch.tensor([0.0, 3.0]))
    assert optimizer.velocity == []


def test_momentum_sums_past_gradients_geometrically():
    param = torch.tensor([0.0], dtype=torch.float64)
    optimizer = make_optimizer("sgd", momentum=0.5)
    for _ in range(4):
        optimizer.step([param], [torch.ones(1, dtype=torch.float64)], 1.0)
    assert param.item() == -(1 + 1.5 + 1.75 + 1.875)


def test_adam_moves_by_the_rate_while_the_gradient_is_constant():
    param = torch.tensor([1.0, 1.0], dtype=torch.float64)
    optimizer = Adam()
    for _ in range(5):
        optimizer.step([param], [torch.tensor([3.0, -0.01], dtype=torch.float64)], 0.1)
    torch.testing.assert_close(
        param, torch.tensor([0.5, 1.5], dtype=torch.float64), rtol=0, atol=1e-6
    )


def test_weight_decay_of_adamw_shrinks_weights_without_any_gradient():
    param = torch.tensor([2.0])
    make_optimizer("adamw", weight_decay=0.5).step([param], [torch.zeros(1)], 0.1)
    assert param.item() == pytest.approx(2 * (1 - 0.05))


def test_state_begins_at_the_first_step_and_is_not_shared():
    first, second = make_optimizer("sgd", 0.9), make_optimizer("sgd", 0.9)
    param = torch.zeros(1)
    first.step([param], [torch.ones(1)], 1.0)
    second.step([param], [torch.ones(1)], 1.0)
    assert param.item() == -2.0


@pytest.mark.parametrize("name", ["adam", "adamw"])
def test_momentum_with_adam_is_an_error_rather_than_ignored(name):
    with pytest.raises(UsageError, match="takes no momentum"):
        make_optimizer(name, momentum=0.9)


def test_an_unknown_name_is_an_error():
    with pytest.raises(UsageError, match="no optimizer 'rmsprop': did you mean 'RMSprop'"):
        make_optimizer("rmsprop")


@settings(max_examples=20, deadline=None)
@given(
    limit=st.floats(1e-3, 100.0),
    magnitude=st.sampled_from([0.0, 1e-8, 1.0, 1e4]),
    seed=st.integers(0, 1000),
)
def test_clipping_equals_that_of_torch(limit, magnitude, seed):
    grads = [grad * magnitude for grad in draw(torch.Generator().manual_seed(seed))]
    params = [torch.zeros_like(grad).requires_grad_() for grad in grads]
    for param, grad in zip(params, grads, strict=True):
        param.grad = grad.clone()
    torch.nn.utils.clip_grad_norm_(params, limit)
    clipped = clip_by_norm(grads, limit)
    assert all(map(torch.equal, clipped, [param.grad for param in params]))


def test_clipping_keeps_short_gradients_and_scales_long_ones():
    short, long = [torch.tensor([0.3, 0.4])], [torch.tensor([3.0]), torch.tensor([4.0])]
    assert torch.equal(clip_by_norm(short, 1.0)[0], short[0])
    torch.testing.assert_close(torch.cat(clip_by_norm(long, 1.0)), torch.tensor([0.6, 0.8]))


def test_clipping_leaves_its_arguments_alone_even_where_two_are_one():
    shared = torch.tensor([3.0, 4.0])
    first, second = clip_by_norm([shared, shared], 1.0)
    assert shared.tolist() == [3.0, 4.0]
    assert torch.equal(first, second)
    assert first.data_ptr() != second.data_ptr()
    assert torch.cat([first, second]).norm().item() == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize(
    ("name", "options"),
    [("RMSprop", {"alpha": 0.9}), ("Adagrad", {}), ("NAdam", {"betas": [0.8, 0.99]}), ("SGD", {})],
)
def test_classes_of_torch_take_the_same_steps_as_they_do_alone(name, options):
    generator = torch.Generator().manual_seed(5)
    ours = draw(generator)
    theirs = [tensor.clone().requires_grad_() for tensor in ours]
    optimizer = make_optimizer(name, weight_decay=0.1, options=options)
    plain = {key: tuple(v) if isinstance(v, list) else v for key, v in options.items()}
    oracle = getattr(torch.optim, name)(theirs, lr=0.1, weight_decay=0.1, **plain)
    for lr in (0.1, 0.05, 0.2):
        grads = draw(generator)
        for param, grad in zip(theirs, grads, strict=True):
            param.grad = grad.clone()
        oracle.param_groups[0]["lr"] = lr
        oracle.step()
        optimizer.step(ours, grads, lr)
        assert all(map(torch.equal, ours, theirs))
    assert all(tensor.grad is None for tensor in ours)


@pytest.mark.parametrize(("name", "settings", "message"), [
    ("RMSProp", {}, "local.optimizer: there is no optimizer 'RMSProp': did you mean 'RMSprop'? ("),
    ("LBFGS", {}, "local.optimizer: LBFGS computes several losses per step, which local training"),
    ("Adagrad", {"momentum": 0.9}, "local: optimizer 'Adagrad' has no 'momentum': did you mean"),
    ("RMSprop", {"options": {"alfa": 1}},
     "local.optimizer_options: optimizer 'RMSprop' has no 'alfa': did you mean 'alpha'?"),
    ("Adagrad", {"options": {"eps": -1.0}},
     "local.optimizer_options: optimizer 'Adagrad': Invalid epsilon value: -1.0"),
    ("adam", {"options": {"betas": [0.5, 0.9]}},
     "local.optimizer_options: optimizer 'adam' takes no 'betas': write the class of torch.optim, "
     "such as 'Adam'"),
])  # fmt: skip
def test_what_an_optimizer_does_not_have_is_named(name, settings, message):
    with pytest.raises(UsageError) as caught:
        make_optimizer(name, **settings)
    assert str(caught.value).startswith(message)
