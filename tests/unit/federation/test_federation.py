from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
import torch
from tests.helpers import ONE_TASK, TWO_TASKS, normed_model, tiny_federation, tiny_member

from consort.core.params import Params
from consort.data.examples import Examples, Splits
from consort.errors import UsageError
from consort.federation import cache as module
from consort.federation.blueprint import Blueprint
from consort.federation.federation import EVERYONE, Federation
from consort.federation.member import Member
from consort.models.registry import ModelSpec
from consort.tasks import Classification
from consort.training.compute import Compute


def image_member(classes: int = 2) -> Member:
    def examples(count: int) -> Examples:
        return Examples(torch.randn(count, 3, 16, 16), {"classify": torch.arange(count) % classes})

    return Member.of(
        {"classify": Classification(classes)},
        ModelSpec.of({"name": "cnn4", "scale": 0.1}),
        Splits(examples(4), examples(2), examples(2)),
    )


# Names


@pytest.mark.parametrize(
    "name", ["", "a b", "a/b", "../a", "a\n", "a:b", "a\\b", "*", "-rf", ".", "..", "x" * 65]
)
def test_a_name_that_cannot_be_a_folder_is_refused(name):
    with pytest.raises(UsageError, match="letters, digits") as caught:
        Federation({"fine": tiny_member("fine"), name: tiny_member("odd")})
    assert repr(name) in str(caught.value)


def test_names_of_letters_digits_and_marks_are_fine():
    names = ["writer_01", "Zürich", "a.b-c", "7"]
    assert set(Federation({n: tiny_member(n) for n in names}).client_ids) == set(names)


def test_nobody_is_no_federation():
    with pytest.raises(UsageError, match="at least one client"):
        Federation({})


def test_clients_are_in_order_however_they_were_given():
    members = {name: tiny_member(name) for name in ("c", "a", "b")}
    federation = Federation(members)
    assert federation.client_ids == federation.evaluation_ids == ("a", "b", "c")
    assert federation.roster.ids == ("a", "b", "c")


# Models


def test_there_is_one_model_in_memory_for_all_clients_of_an_architecture():
    federation = tiny_federation(clients=5)
    assert len({id(federation.blueprint(client)) for client in federation.client_ids}) == 1
    assert len({id(federation.blueprint(client).model) for client in federation.client_ids}) == 1
    assert len(federation.roster.initial) == 1


def test_other_models_tasks_or_inputs_are_other_architectures():
    narrow = tiny_member("d")
    members = {
        "a": tiny_member("a"),
        "b": tiny_member("b", model={"name": "mlp", "hidden": [5]}),
        "c": tiny_member("c", tasks=TWO_TASKS),
        "d": replace(narrow, example=narrow.example[:4]),
        "e": tiny_member("e", tasks={"classify": 4}),
        "f": tiny_member("f", train=7),
    }
    federation = Federation(members)
    blueprints = {client: id(federation.blueprint(client)) for client in members}
    assert blueprints["a"] == blueprints["f"]
    assert len(set(blueprints.values())) == 5


def test_clients_with_other_tasks_start_from_the_same_encoder():
    members = {"a": tiny_member("a"), "b": tiny_member("b", tasks=TWO_TASKS)}
    roster = Federation(members).roster
    assert roster.model("a").only("encoder").equals(roster.model("b").only("encoder"))
    assert roster.tasks == {"a": ("classify",), "b": ("colour", "shape")}


def test_initial_weights_depend_on_the_seed_alone():
    torch.manual_seed(1)
    first = tiny_federation(seed=3).roster.shared()
    torch.manual_seed(2)
    assert tiny_federation(seed=3).roster.shared().equals(first)
    assert not tiny_federation(seed=4).roster.shared().equals(first)


def test_a_fresh_model_has_its_initial_parameters_and_buffers():
    model = normed_model()
    initial = {name: value.clone() for name, value in model.state_dict().items()}
    blueprint = Blueprint(model)
    model.train()
    model(torch.randn(6, 8))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)
    changed = [n for n, value in model.state_dict().items() if not torch.equal(value, initial[n])]
    assert set(changed) == set(initial)
    fresh = blueprint.fresh()
    assert fresh is model
    assert fresh.state_dict().keys() == initial.keys()
    assert all(torch.equal(value, initial[name]) for name, value in fresh.state_dict().items())


def test_the_initial_weights_of_a_blueprint_are_its_own():
    blueprint = Blueprint(normed_model())
    before = blueprint.params * 1.0
    (before * 2.0).load_into(blueprint.model)
    assert blueprint.params.equals(before)
    assert blueprint.shapes == before.shapes
    assert Params.of(blueprint.fresh()).equals(before)


@pytest.mark.parametrize("policy", ["average", "local", "recompute"])
def test_the_batchnorm_policy_reaches_every_model(policy, normed_encoder):
    federation = tiny_federation(model={"name": "normed"}, batchnorm=policy)
    assert federation.blueprint("c2").model.batchnorm == policy
    assert bool(federation.roster.shared("buffers")) is (policy == "average")


@pytest.mark.parametrize("channels_last", [True, False])
def test_images_and_convolutions_are_laid_out_as_the_recipe_says(channels_last):
    federation = Federation({"a": image_member()}, compute=Compute(channels_last=channels_last))
    wanted = torch.channels_last if channels_last else torch.contiguous_format
    kernel = federation.blueprint("a").model.encoder.conv1.weight
    assert kernel.is_contiguous(memory_format=wanted)
    data = federation.data("a")
    for part in (data.train, data.validation, data.test):
        assert part.inputs.is_contiguous(memory_format=wanted)
    assert torch.equal(data.train.inputs, federation.members["a"].load().train.inputs)
    assert all(tensor.is_contiguous() for tensor in federation.roster.model("a").values())


# Data


def counted(federation: Federation) -> tuple[Federation, Counter[str]]:
    """A federation that counts how often it loads each client's data."""
    loads: Counter[str] = Counter()

    def counting(name: str, member: Member) -> Member:
        def load() -> Splits:
            loads[name] += 1
            return member.load()

        return replace(member, load=load)

    members = {n: counting(n, member) for n, member in federation.members.items()}
    return replace(federation, members=members), loads


def bytes_of(splits: Splits) -> int:
    parts = (splits.train, splits.validation, splits.test)
    return sum(t.nbytes for part in parts for t in (part.inputs, *part.targets.values()))


def test_data_are_loaded_when_needed_and_kept():
    federation = tiny_federation()
    federation, loads = counted(federation)
    _ = federation.roster
    assert not loads
    assert federation.data("c1") is federation.data("c1")
    assert len(federation.data("c1").train) == 31
    assert loads == {"c1": 1}


def test_the_client_unused_for_longest_makes_room(monkeypatch):
    federation = tiny_federation(clients=3)
    federation, loads = counted(federation)
    room = sum(bytes_of(federation.members[client].load()) for client in ("c0", "c1"))
    loads.clear()
    monkeypatch.setattr(module, "KEPT_BYTES", room + 100)
    for client in ("c0", "c1", "c0", "c2", "c0"):
        federation.data(client)
    assert loads == {"c0": 1, "c1": 1, "c2": 1}
    federation.data("c1")
    assert loads == {"c0": 1, "c1": 2, "c2": 1}


def test_just_enough_room_is_enough(monkeypatch):
    federation = tiny_federation(clients=3)
    federation, loads = counted(federation)
    room = sum(bytes_of(member.load()) for member in federation.members.values())
    loads.clear()
    monkeypatch.setattr(module, "KEPT_BYTES", room)
    for client in ("c0", "c1", "c2") * 3:
        federation.data(client)
    assert loads == {"c0": 1, "c1": 1, "c2": 1}


def test_without_room_the_client_at_work_still_has_its_data(monkeypatch):
    monkeypatch.setattr(module, "KEPT_BYTES", 0)
    federation = tiny_federation(clients=2)
    federation, loads = counted(federation)
    for client in ("c0", "c0", "c1", "c0"):
        assert len(federation.data(client).train) == 30 + int(client[1])
    assert loads == {"c0": 2, "c1": 1}


# Pooling


def test_a_pool_holds_the_examples_of_all_clients_and_only_the_pool_trains():
    federation = tiny_federation(clients=3, tasks=TWO_TASKS, seed=5)
    pool = federation.pooled()
    assert pool.client_ids == pool.roster.ids == (EVERYONE,)
    assert pool.evaluation_ids == ("c0", "c1", "c2")
    assert (pool.seed, pool.batchnorm, pool.compute) == (5, "average", federation.compute)
    for part in ("train", "validation", "test"):
        own = [getattr(federation.data(client), part) for client in federation.client_ids]
        everything = getattr(pool.data(EVERYONE), part)
        assert torch.equal(everything.inputs, torch.cat([o.inputs for o in own]))
        assert everything.targets.keys() == TWO_TASKS.keys()
        for task in TWO_TASKS:
            assert torch.equal(everything.targets[task], torch.cat([o.targets[task] for o in own]))


def test_a_pool_starts_from_the_model_of_its_clients_who_keep_their_data():
    federation = tiny_federation(clients=3)
    pool = federation.pooled()
    assert pool.blueprint(EVERYONE) is pool.blueprint("c1")
    assert pool.roster.shared().equals(federation.roster.shared())
    assert torch.equal(pool.data("c1").test.inputs, federation.data("c1").test.inputs)
    assert federation.client_ids == ("c0", "c1", "c2")


@pytest.mark.parametrize("other", [
    {"model": {"name": "mlp", "hidden": [5]}}, {"tasks": TWO_TASKS}, {"tasks": {"classify": 4}}
])  # fmt: skip
def test_unlike_clients_cannot_be_pooled(other):
    federation = Federation({"a": tiny_member("a"), "b": tiny_member("b", **other)})
    with pytest.raises(UsageError, match="one architecture and the same tasks"):
        federation.pooled()


# What is shared


def test_an_algorithm_that_averages_what_differs_is_told_which_two_clients_differ_and_where():
    members = {
        "ada": tiny_member("ada"),
        "bob": tiny_member("bob"),
        "cleo": tiny_member("cleo", tasks={"classify": 4}),
    }
    roster = Federation(members).roster
    with pytest.raises(UsageError, match=r"ada and cleo differ in 'heads\.classify\.bias'"):
        roster.shared()
    assert roster.shared("encoder").shapes == roster.model("cleo").only("encoder").shapes


def test_everything_is_shared_among_like_clients():
    roster = tiny_federation(tasks=ONE_TASK).roster
    assert roster.shared().shapes == {
        "encoder.layers.0.weight": (16, 8),
        "encoder.layers.0.bias": (16,),
        "heads.classify.weight": (3, 16),
        "heads.classify.bias": (3,),
    }
