from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.helpers import tiny_federation
from torch import Tensor, nn

from consort.core.params import Params, has_role, mean, slots
from consort.core.randomness import generator_for
from consort.errors import NoReplies, UsageError
from consort.federation.federation import Federation
from consort.models.multitask import BatchNormPolicy, MultiTaskModel
from consort.training.scoring import recompute_statistics

SHAPES = {"encoder.w": (3, 2), "encoder.b": (3,), "heads.t.w": (2, 3, 1), "heads.t.s": ()}
scalars = st.floats(-8, 8)
seeds = st.integers(0, 10_000)


def random_params(seed: int, shapes=SHAPES, dtype=torch.float32) -> Params:
    generator = generator_for(seed, "params")
    return Params(
        {
            name: torch.randn(shape, generator=generator, dtype=dtype)
            for name, shape in shapes.items()
        }
    )


def assert_close(left: Params, right: Params, tolerance: float = 1e-4) -> None:
    assert left.shapes == right.shapes
    for name, tensor in left.items():
        torch.testing.assert_close(tensor, right[name], rtol=tolerance, atol=tolerance)


def small_batchnorm_model(batchnorm="average") -> MultiTaskModel:
    encoder = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten())
    heads = {"digits": nn.Linear(2, 3), "digits2": nn.Sequential(nn.BatchNorm1d(2))}
    return MultiTaskModel(encoder, heads, batchnorm=batchnorm)


# The laws of a vector space


@settings(max_examples=15, deadline=None)
@given(a=seeds, b=seeds, c=seeds, k=scalars, m=scalars)
def test_the_laws_of_a_vector_space_hold(a, b, c, k, m):
    u, v, w = random_params(a), random_params(b), random_params(c)
    assert_close((u + v) + w, u + (v + w))
    assert (u + v).equals(v + u)
    assert (u + u.zeros()).equals(u)
    assert (u + -u).equals(u.zeros())
    assert (u - v).equals(u + -v)
    assert (u * 1.0).equals(u)
    assert (k * u).equals(u * k)
    assert_close((u * m) * k, u * (m * k))
    assert_close((u + v) * k, u * k + v * k)
    assert_close(u * (k + m), u * k + u * m)


@settings(max_examples=15, deadline=None)
@given(a=seeds, b=seeds, c=seeds, k=scalars)
def test_the_laws_of_an_inner_product_hold(a, b, c, k):
    u, v, w = random_params(a), random_params(b), random_params(c)
    assert u.dot(v) == pytest.approx(v.dot(u))
    assert (u + k * v).dot(w) == pytest.approx(u.dot(w) + k * v.dot(w), rel=1e-4, abs=1e-4)
    assert abs(u.dot(v)) <= u.norm() * v.norm() * (1 + 1e-6)
    assert (u + v).norm() <= (u.norm() + v.norm()) * (1 + 1e-6)


def test_arithmetic_by_hand():
    a = Params({"w": torch.tensor([1.0, 2.0]), "b": torch.tensor(3.0)})
    b = Params({"b": torch.tensor(1.0), "w": torch.tensor([4.0, 8.0])})
    assert (a + b).equals(Params({"w": torch.tensor([5.0, 10.0]), "b": torch.tensor(4.0)}))
    assert (b - a).equals(Params({"w": torch.tensor([3.0, 6.0]), "b": torch.tensor(-2.0)}))
    assert (a * 2).equals(Params({"w": torch.tensor([2.0, 4.0]), "b": torch.tensor(6.0)}))
    assert (b / 4).equals(Params({"w": torch.tensor([1.0, 2.0]), "b": torch.tensor(0.25)}))
    assert a.dot(b) == 4 + 16 + 3
    assert a.norm() == math.sqrt(14)


def test_elementwise_arithmetic_by_hand():
    a = Params({"w": torch.tensor([4.0, -9.0, 0.0]), "b": torch.tensor(16.0)})
    b = Params({"b": torch.tensor(2.0), "w": torch.tensor([2.0, 3.0, 5.0])})
    expected = [
        (a * b, [8.0, -27.0, 0.0], 32.0),
        (a / b, [2.0, -3.0, 0.0], 8.0),
        (a + 1.0, [5.0, -8.0, 1.0], 17.0),
        (a - 1.0, [3.0, -10.0, -1.0], 15.0),
        (abs(a), [4.0, 9.0, 0.0], 16.0),
        (a.abs(), [4.0, 9.0, 0.0], 16.0),
        (abs(a).sqrt(), [2.0, 3.0, 0.0], 4.0),
        (a.sign(), [1.0, -1.0, 0.0], 1.0),
        (a.map(lambda tensor: tensor.clamp(max=3.0)), [3.0, -9.0, 0.0], 3.0),
    ]
    for found, weight, bias in expected:
        assert list(found) == ["w", "b"]
        assert found["w"].tolist() == weight
        assert found["b"].item() == bias


@pytest.mark.parametrize("operator", ["__mul__", "__truediv__"])
def test_models_with_different_names_are_not_multiplied(operator):
    one, other = Params({"w": torch.ones(2)}), Params({"v": torch.ones(2)})
    with pytest.raises(UsageError, match="only one of them has 'v'"):
        getattr(one, operator)(other)


def test_results_keep_the_order_of_names_of_the_left_operand():
    a, b = random_params(0), random_params(1)
    backwards = Params(dict(reversed(list(b.items()))))
    assert list(a + backwards) == list(SHAPES)
    assert list(backwards - a) == list(reversed(SHAPES))
    assert (a + backwards).equals(a + b)


@pytest.mark.parametrize("operation", [
    lambda a, b: a + b,
    lambda a, b: a - b,
    lambda a, b: -a,
    lambda a, b: a * 0.5,
    lambda a, b: 0.5 * a,
    lambda a, b: a / 3,
    lambda a, b: a * b,
    lambda a, b: a / b,
    lambda a, b: a + 2.0,
    lambda a, b: abs(a),
    lambda a, b: a.sqrt(),
    lambda a, b: a.sign(),
    lambda a, b: a.map(torch.exp),
    lambda a, b: a | b,
    lambda a, b: a.zeros(),
    lambda a, b: a.dot(b),
    lambda a, b: a.norm(),
    lambda a, b: mean([a, b], [1.0, 2.0]),
    lambda a, b: mean([a]),
    lambda a, b: a.only("encoder"),
    lambda a, b: a.without("encoder"),
])  # fmt: skip
def test_no_operation_changes_its_operands(operation):
    a, b = random_params(0), random_params(1)
    operation(a, b)
    assert a.equals(random_params(0))
    assert b.equals(random_params(1))


@pytest.mark.parametrize("result", [
    lambda a: a + a.zeros(),
    lambda a: a * 1.0,
    lambda a: mean([a]),
    lambda a: mean([a, a]),
])  # fmt: skip
def test_results_have_memory_of_their_own(result):
    a = random_params(0)
    for tensor in result(a).values():
        tensor.zero_()
    assert a.equals(random_params(0))


def test_there_is_no_way_to_assign_to_a_name():
    params = random_params(0)
    with pytest.raises(TypeError):
        params["encoder.w"] = torch.zeros(3, 2)
    with pytest.raises(TypeError):
        del params["encoder.w"]
    with pytest.raises(AttributeError):
        params.extra = 1


def test_a_mapping_that_is_no_dict_is_copied():
    source = {"w": torch.ones(1)}
    params = Params(Params(source))
    source["v"] = torch.ones(1)
    assert list(params) == ["w"]


def test_models_with_different_names_cannot_be_combined():
    a = Params({"encoder.w": torch.ones(1), "heads.a.w": torch.ones(1)})
    b = Params({"encoder.w": torch.ones(1), "heads.b.w": torch.ones(1)})
    for combine in (lambda: a + b, lambda: a - b, lambda: a.dot(b), lambda: mean([a, b])):
        with pytest.raises(UsageError, match=r"only one of them has 'heads\.a\.w'"):
            combine()


def test_description_size_and_shapes():
    params = random_params(0)
    assert repr(params) == "Params(4 tensors, 16 numbers)"
    assert params.size == 6 + 3 + 6 + 1
    assert params.shapes == SHAPES
    assert len(params) == 4
    assert "encoder.w" in params
    assert "encoder" not in params


def test_equality_needs_the_same_names_shapes_and_values():
    params = random_params(0)
    assert params.equals(Params(dict(reversed(list(params.items())))))
    assert not params.equals(params.without("heads"))
    assert not params.without("heads").equals(params)
    assert not params.equals(params | {"encoder.b": params["encoder.b"].reshape(3, 1)})
    nudged = torch.nextafter(params["heads.t.s"], torch.tensor(9.0))
    assert not params.equals(params | {"heads.t.s": nudged})


# Precision and order of sums


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dot_and_norm_agree_with_sums_in_double_precision(dtype):
    shapes = {"a": (300, 701), "b": (1,), "c": (65536,), "d": (65537,), "e": (0, 3)}
    a, b = random_params(0, shapes, dtype), random_params(1, shapes, dtype)
    exact = math.fsum(float((a[n].double() * b[n].double()).sum()) for n in shapes)
    square = math.fsum(float(a[n].double().square().sum()) for n in shapes)
    assert a.dot(b) == pytest.approx(exact, abs=1e-6 * a.norm() * b.norm())
    assert a.norm() == pytest.approx(math.sqrt(square), rel=1e-6)


def test_small_parts_are_not_lost_beside_huge_ones():
    params = Params({"huge": torch.tensor([2.0**13]), "small": torch.full((4,), 0.5)})
    assert params.dot(params) == 2**26 + 1
    assert params.norm() == math.sqrt(2**26 + 1)


def test_rounding_does_not_grow_with_the_size_of_a_tensor():
    params = Params({"w": torch.full((1 << 20,), 0.1)})
    exact = (1 << 20) * float(params["w"][0]) ** 2
    assert params.dot(params) == pytest.approx(exact, rel=2e-5)


def test_dot_does_not_depend_on_the_layout_of_images():
    kernel = torch.randn(8, 3, 5, 5)
    other = torch.randn(8, 3, 5, 5)
    last = Params({"w": kernel.to(memory_format=torch.channels_last)})
    assert last.dot(Params({"w": other})) == Params({"w": kernel}).dot(Params({"w": other}))


@settings(max_examples=15, deadline=None)
@given(
    weights=st.lists(st.floats(0, 100), min_size=1, max_size=6).filter(lambda w: sum(w) > 0.01),
    seed=seeds,
)
def test_the_weighted_mean_equals_its_closed_form(weights, seed):
    items = [random_params(seed + i) for i in range(len(weights))]
    result = mean(items, weights)
    for name in SHAPES:
        stacked = torch.stack([item[name].double() for item in items])
        factors = torch.tensor(weights, dtype=torch.float64) / sum(weights)
        expected = (factors.view(-1, *[1] * (stacked.ndim - 1)) * stacked).sum(0)
        torch.testing.assert_close(result[name].double(), expected, rtol=1e-5, atol=1e-6)


def test_without_weights_everybody_counts_the_same():
    items = [random_params(i) for i in range(3)]
    assert mean(items).equals(mean(items, [7.0, 7.0, 7.0]))
    assert_close(mean(items), (items[0] + items[1] + items[2]) / 3, 1e-6)


def test_only_the_ratio_of_weights_matters():
    items = [random_params(i) for i in range(3)]
    assert mean(items, [1, 2, 5]).equals(mean(items, [2, 4, 10]))


def test_the_mean_of_one_is_that_one():
    assert mean([random_params(3)], [0.3]).equals(random_params(3))


def test_a_weight_of_zero_leaves_a_client_out():
    a, b, c = (random_params(i) for i in range(3))
    assert mean([a, b, c], [1, 0, 3]).equals(mean([a, c], [1, 3]))


def test_the_mean_is_summed_in_the_order_given():
    values = (1.0, 2.0**25, -(2.0**25), 0.25)
    items = [Params({"w": torch.tensor([value])}) for value in values]
    sums = torch.zeros(())
    for value in values:
        sums = sums + torch.tensor(value) * 0.25
    assert mean(items)["w"].item() == sums.item() == 0.0625
    assert mean([items[1], items[2], items[0], items[3]])["w"].item() == 0.3125


def test_the_mean_of_nothing_is_an_error():
    with pytest.raises(NoReplies, match="nothing to average"):
        mean([])
    with pytest.raises(NoReplies, match="all weights are 0"):
        mean([random_params(0), random_params(1)], [0.0, 0.0])


@pytest.mark.parametrize("weights", [[1.0, -1.0], [math.nan, 1.0]])
def test_weights_without_a_positive_sum_are_an_error(weights):
    with pytest.raises(UsageError, match="positive sum"):
        mean([random_params(0), random_params(1)], weights)


@pytest.mark.parametrize("weights", [[1.0], [1.0, 1.0, 1.0]])
def test_there_must_be_one_weight_for_each(weights):
    with pytest.raises(ValueError, match="zip"):
        mean([random_params(0), random_params(1)], weights)


# Roles


@pytest.mark.parametrize(("name", "role", "belongs"), [
    ("encoder.0.weight", "encoder", True),
    ("encoder", "encoder", True),
    ("encoder2.0.weight", "encoder", False),
    ("encoder.0.weight", "encoder.0", True),
    ("encoder.01.weight", "encoder.0", False),
    ("encoder.0.weight", "encoder.0.weight", True),
    ("encoder.0.weight", "enc", False),
    ("heads.digits.weight", "heads", True),
    ("heads.digits.weight", "heads.digits", True),
    ("heads.digits2.weight", "heads.digits", False),
    ("heads.encoder.weight", "encoder", False),
    ("decoders.heads.weight", "heads", False),
    ("buffers.encoder.1.running_mean", "buffers", True),
    ("buffers.encoder.1.running_mean", "encoder", True),
    ("buffers.encoder.1.running_mean", "encoder.1", True),
    ("buffers.encoder.1.running_mean", "buffers.encoder", True),
    ("buffers.encoder.1.running_mean", "heads", False),
    ("buffers.encoder2.running_mean", "encoder", False),
    ("encoder.buffers.weight", "buffers", False),
])  # fmt: skip
def test_roles_are_whole_components_at_the_beginning(name, role, belongs):
    assert has_role(name, role) is belongs


def test_parts_by_role():
    model = Params.of(small_batchnorm_model())
    statistics = {"buffers.encoder.1.running_mean", "buffers.encoder.1.running_var"}
    encoder = {f"encoder.{i}.{kind}" for i in (0, 1) for kind in ("weight", "bias")}
    digits = {"heads.digits.weight", "heads.digits.bias"}
    assert model.only("encoder").keys() == encoder | statistics
    assert model.only("heads.digits").keys() == digits
    assert model.only("encoder", "heads.digits").keys() == encoder | statistics | digits
    assert model.only("buffers").keys() > statistics
    assert model.only("encoder").without("buffers").keys() == encoder
    assert model.without("heads").keys() == encoder | statistics
    assert len(model.only()) == len(model.only("enc")) == 0
    assert model.without().equals(model)


@settings(max_examples=20, deadline=None)
@given(roles=st.lists(st.sampled_from(
    ["encoder", "heads", "heads.digits", "heads.digits2", "buffers", "encoder.1", "nothing"]
)))  # fmt: skip
def test_the_parts_with_and_without_roles_make_the_whole(roles):
    model = Params.of(small_batchnorm_model())
    inside, outside = model.only(*roles), model.without(*roles)
    assert not inside.keys() & outside.keys()
    assert (inside | outside).equals(model)


def test_in_a_union_the_right_side_wins():
    a = Params({"v": torch.zeros(1), "w": torch.zeros(1)})
    union = a | Params({"w": torch.ones(1), "x": torch.ones(1)})
    assert list(union) == ["v", "w", "x"]
    assert torch.cat(list(union.values())).tolist() == [0, 1, 1]
    assert (a | {"v": torch.ones(1)})["v"].item() == 1


# Models


def test_of_is_a_copy_of_everything_that_travels():
    model = tiny_federation().blueprint("c0").model
    params = Params.of(model)
    assert params.keys() == dict(model.named_parameters()).keys()
    before = params * 1.0
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)
    assert params.equals(before)
    assert not any(tensor.requires_grad for tensor in params.values())


def test_of_has_the_plain_layout_however_the_model_stores_it():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 2, 2))
    plain = Params.of(model)
    model.to(memory_format=torch.channels_last)
    assert not model[0].weight.is_contiguous()
    travelled = Params.of(model)
    assert all(tensor.is_contiguous() for tensor in travelled.values())
    assert travelled.equals(plain)
    assert travelled.norm() == plain.norm()


def test_loading_keeps_the_layout_of_the_model():
    model = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    wanted = Params.of(nn.Conv2d(3, 4, 3))
    wanted.load_into(model)
    assert model.weight.is_contiguous(memory_format=torch.channels_last)
    assert Params.of(model).equals(wanted)


def test_a_part_is_loaded_and_the_rest_stays():
    model = small_batchnorm_model()
    before = Params.of(model)
    part = before.only("heads.digits") + before.only("heads.digits") * 2
    part.load_into(model)
    after = Params.of(model)
    assert after.only("heads.digits").equals(part)
    assert after.without("heads.digits").equals(before.without("heads.digits"))


def test_loading_leaves_parameters_trainable_and_the_source_alone():
    model = small_batchnorm_model()
    source = Params.of(model) * 2.0
    copy = source * 1.0
    source.load_into(model)
    with torch.no_grad():
        for tensor in slots(model).values():
            tensor.add_(1)
    assert source.equals(copy)
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert all(parameter.grad_fn is None for parameter in model.parameters())


def test_an_unknown_name_is_refused_before_anything_is_loaded():
    model = small_batchnorm_model()
    before = Params.of(model)
    odd = (before * 2.0) | {"heads.letters.weight": torch.zeros(1)}
    with pytest.raises(UsageError, match=r"no parameter 'heads\.letters\.weight'"):
        odd.load_into(model)
    assert Params.of(model).equals(before)


def test_a_wrong_shape_is_refused_before_anything_is_loaded():
    model = small_batchnorm_model()
    before = Params.of(model)
    wrong = (before * 2.0) | {"heads.digits.bias": torch.zeros(4)}
    with pytest.raises(UsageError, match=r"'heads\.digits\.bias' has shape \(4,\).*\(3,\)"):
        wrong.load_into(model)
    assert Params.of(model).equals(before)


def test_shapes_that_could_be_broadcast_are_not_loaded():
    model = small_batchnorm_model()
    with pytest.raises(UsageError, match="architectures differ"):
        Params({"heads.digits.bias": torch.zeros(1)}).load_into(model)


# BatchNorm


def normed_federation(batchnorm: BatchNormPolicy) -> Federation:
    return tiny_federation(clients=2, model={"name": "normed"}, batchnorm=batchnorm)


def trained_on(model: MultiTaskModel, inputs: Tensor) -> Params:
    model.train()
    with torch.no_grad():
        model(inputs)
    return Params.of(model)


@pytest.mark.usefixtures("normed_encoder")
def test_averaged_statistics_travel_and_counters_do_not():
    federation = normed_federation("average")
    model = federation.blueprint("c0").fresh()
    live = dict(model.named_buffers())
    names = {f"buffers.{n}" for n, buffer in live.items() if buffer.is_floating_point()}
    assert any(name.endswith("num_batches_tracked") for name in live)
    assert Params.of(model).only("buffers").keys() == names
    assert all(name.endswith(("running_mean", "running_var")) for name in names)


@pytest.mark.usefixtures("normed_encoder")
def test_averaged_statistics_are_the_mean_of_those_of_the_clients():
    federation = normed_federation("average")
    replies = []
    for client in federation.client_ids:
        model = federation.blueprint(client).fresh()
        replies.append(trained_on(model, federation.data(client).train.inputs))
    mean(replies, [1.0, 3.0]).load_into(model)
    buffer = "encoder.norm.running_mean"
    a, b = (reply[f"buffers.{buffer}"] for reply in replies)
    assert not torch.equal(a, b)
    torch.testing.assert_close(dict(model.named_buffers())[buffer], a / 4 + 3 * b / 4)


@pytest.mark.usefixtures("normed_encoder")
@pytest.mark.parametrize("policy", ["local", "recompute"])
def test_other_policies_send_no_statistics_and_take_none(policy):
    federation = normed_federation(policy)
    model = federation.blueprint("c0").fresh()
    params = trained_on(model, federation.data("c0").train.inputs)
    assert len(params.only("buffers")) == 0
    assert params.keys() == dict(model.named_parameters()).keys()
    kept = [buffer.clone() for buffer in model.buffers()]
    (params * 0.5).load_into(model)
    assert all(map(torch.equal, model.buffers(), kept))
    averaging = Params.of(normed_federation("average").blueprint("c0").model)
    with pytest.raises(UsageError, match=r"no parameter 'buffers\.encoder"):
        averaging.load_into(model)


@pytest.mark.usefixtures("normed_encoder")
def test_recomputed_statistics_depend_on_weights_and_data_alone():
    federation = normed_federation("recompute")
    train = federation.data("c0").train
    model = federation.blueprint("c0").fresh()
    recompute_statistics(model, train)
    wanted = [buffer.clone() for buffer in model.buffers()]
    trained_on(model, torch.randn(5, 8))
    recompute_statistics(model, train)
    assert all(map(torch.equal, model.buffers(), wanted))


def test_a_module_without_a_policy_sends_its_statistics():
    assert Params.of(nn.BatchNorm1d(2)).keys() == {
        "weight", "bias", "buffers.running_mean", "buffers.running_var"
    }  # fmt: skip
