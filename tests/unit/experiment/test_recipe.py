"""Recipes: what is filled in, what lies over what, what is refused, and what comes back."""

from __future__ import annotations

import json
import tomllib
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter
from tests.unit.cli.command import RECIPE, write_recipe

from consort.algorithms.ditto import Ditto
from consort.algorithms.fedavg import FedAvg
from consort.data.partition import Cut
from consort.errors import UsageError
from consort.experiment.assembly import assemble
from consort.experiment.loading import load_recipe, recipe_of
from consort.experiment.recipe import Group, Recipe
from consort.experiment.shipped import find_recipe, shipped_recipes
from consort.experiment.tables import merged
from consort.models.registry import ModelSpec, build
from consort.results.table import Published
from consort.run.schedule import Schedule
from consort.tasks import Classification
from consort.training.compute import Compute

TINY = tomllib.loads(RECIPE)
MY_ALGORITHM = '''
from __future__ import annotations

from dataclasses import dataclass

from consort.algorithms.fedavg import FedAvg


@dataclass(frozen=True)
class Mine(FedAvg):
    """Averages my way."""

    strength: float = 0.5
'''


def recipe(**changes: Any) -> Recipe:
    return recipe_of({**TINY, **changes}, "tiny.toml")


def grouped(*groups: dict[str, Any], **changes: Any) -> Recipe:
    table = {key: value for key, value in TINY.items() if key != "clients"}
    return recipe_of({**table, **changes, "groups": list(groups)}, "tiny.toml")


def test_what_a_recipe_leaves_out_has_a_default():
    plain = recipe_of({"clients": 2, "model": {"name": "mlp"}, "algorithms": {"fedavg": {}}}, "x")
    assert (plain.title, plain.about, plain.groups, plain.data) == ("", "", [], {})
    assert plain.partition == Cut()
    assert plain.run == Schedule()
    assert plain.compute == Compute()
    assert (plain.batchnorm, plain.local, plain.seeds) == ("average", {}, [0])
    assert (plain.published, plain.claims, plain.scales) == ([], [], {})
    assert plain.algorithm("fedavg") == FedAvg()


def test_clients_without_groups_are_one_group():
    (group,) = recipe().all_groups
    assert (group.name, group.count, group.tasks, group.classes) == ("client", 3, [], [])
    assert (group.data, group.model) == (TINY["data"], TINY["model"])
    assert group.partition == Cut()


def test_groups_take_what_they_leave_out_from_the_top():
    own = {
        "name": "own",
        "count": 2,
        "data": {"name": "synthetic_news"},
        "partition": {"by": "dirichlet", "alpha": 0.3},
        "model": {"name": "textcnn"},
        "tasks": ["classify"],
        "classes": [1, 3],
    }
    top = {"by": "quantity", "alpha": 2.0}
    given = grouped(own, {"name": "plain", "count": 1}, partition=top).all_groups
    assert given[0] == Group(**{**own, "partition": Cut(by="dirichlet", alpha=0.3)})
    assert given[1] == Group(
        "plain", 1, TINY["data"], Cut(by="quantity", alpha=2.0), TINY["model"], [], []
    )


@pytest.mark.parametrize(("own", "whole"), [
    ({"test": 0.3}, Cut(by="dirichlet", alpha=0.3, validation=0.2, test=0.3)),
    ({"alpha": 1.0}, Cut(by="dirichlet", alpha=1.0, validation=0.2)),
    ({"by": "iid"}, Cut(validation=0.2)),
    ({"by": "quantity"}, Cut(by="quantity", validation=0.2)),
    ({"by": "quantity", "alpha": 2.0, "test": 0.1},
     Cut(by="quantity", alpha=2.0, validation=0.2, test=0.1)),
    ({}, Cut(by="dirichlet", alpha=0.3, validation=0.2)),
])  # fmt: skip
def test_a_groups_partition_adds_to_the_common_one(own, whole):
    common = {"by": "dirichlet", "alpha": 0.3, "validation": 0.2}
    given = grouped({"name": "own", "count": 2, "partition": own}, partition=common)
    (group,) = given.all_groups
    assert group.partition == whole
    again = recipe_of(given.table | {"clients": None}, "run.json")
    assert again.all_groups == given.all_groups


@pytest.mark.parametrize(("common", "own", "message"), [
    ({}, {"tset": 0.3}, "unknown key groups.0.partition.tset: 'tset': did you mean 'test'"),
    ({"validation": 0.5}, {"test": 0.6}, "groups.0.partition: validation and test leave nothing"),
    ({}, {"alpha": 0.3}, 'alpha belongs to by = "dirichlet" or "quantity"'),
    ({}, 0.3, "key groups.0.partition"),
    (0.3, {"test": 0.3}, "key partition"),
    ({"tset": 0.3}, {"test": 0.3}, "unknown key partition.tset"),
])  # fmt: skip
def test_a_groups_partition_that_does_not_fit_is_refused(common, own, message):
    with pytest.raises(UsageError, match=message):
        grouped({"name": "own", "count": 2, "partition": own}, partition=common)


def test_one_model_or_several_in_turns():
    small, large = {"name": "mlp", "hidden": [4]}, {"name": "mlp", "hidden": [9, 9]}
    mixed = grouped({"name": "a", "count": 3, "model": [small, large]}, {"name": "b", "count": 1})
    first, second = mixed.all_groups
    assert mixed.models_of(first) == [ModelSpec.of(small), ModelSpec.of(large)]
    assert mixed.models_of(second) == [ModelSpec.of(TINY["model"])]
    assert recipe(model=[small, large]).models_of(recipe(model=[small, large]).all_groups[0]) == [
        ModelSpec.of(small),
        ModelSpec.of(large),
    ]


def test_no_model_at_all_is_an_error():
    for nothing in ([], {}):
        with pytest.raises(UsageError, match="a model needs a name"):
            recipe(model=nothing)


def test_an_algorithm_has_its_own_options_and_the_common_local_training():
    table = {"fedavg": {}, "ditto": {"strength": 0.7, "personal_epochs": 3}}
    given = recipe(algorithms=table, local={"lr": 0.3, "epochs": 2})
    ditto = given.algorithm("ditto")
    assert isinstance(ditto, Ditto)
    assert (ditto.strength, ditto.personal_epochs) == (0.7, 3)
    assert (ditto.local.lr, ditto.local.epochs, ditto.local.batch) == (0.3, 2, 32)


def test_an_algorithms_own_local_training_lies_over_the_common_one():
    table = {"fedavg": {"local": {"lr": 0.9}}, "ditto": {}}
    given = recipe(algorithms=table, local={"lr": 0.3, "epochs": 2})
    assert (given.algorithm("fedavg").local.lr, given.algorithm("fedavg").local.epochs) == (0.9, 2)
    assert given.algorithm("ditto").local.lr == 0.3
    assert given.algorithms["fedavg"] == {"local": {"lr": 0.9}}


def test_one_algorithm_can_be_there_twice_under_two_names():
    table = {"weak": {"kind": "ditto", "strength": 0.1}, "strong": {"kind": "ditto", "strength": 9}}
    given = recipe(algorithms=table)
    assert given.algorithm("weak") == Ditto(given.algorithm("weak").local, strength=0.1)
    assert given.algorithm("strong").strength == 9


def test_an_algorithm_from_a_file_beside_the_recipe(tmp_path: Path):
    (tmp_path / "mine.py").write_text(MY_ALGORITHM)
    own = '[algorithms.best]\nkind = "mine.py:Mine"\nstrength = 2'
    path = write_recipe(tmp_path, ("[algorithms.ditto]", own))
    found = load_recipe(path).algorithm("best")
    assert type(found).__name__ == "Mine"
    assert isinstance(found, FedAvg)
    assert (found.strength, found.local.lr) == (2.0, 0.1)


def test_an_algorithm_that_the_recipe_does_not_have():
    with pytest.raises(UsageError, match="no algorithm 'dito': did you mean 'ditto'"):
        recipe().algorithm("dito")


def test_published_numbers_and_claims_are_read():
    paper = {"source": "Somebody 2020, Table 1", "metric": "accuracy", "values": {"fedavg": 61.2}}
    claims = ["accuracy(ditto) > accuracy(fedavg)"]
    given = recipe(published=[paper, {**paper, "percent": False}], claims=claims)
    assert given.published[0] == Published("Somebody 2020, Table 1", "accuracy", {"fedavg": 61.2})
    assert [source.percent for source in given.published] == [True, False]
    assert given.claims == claims


def test_a_scale_lies_over_the_recipe(tmp_path: Path):
    more = """
    [scales.desk]
    clients = 2
    run.rounds = 1
    data.examples = 40
    algorithms.ditto.strength = 0.7
    [scales.paper]
    run = { rounds = 200, participation = 0.1 }
    model.hidden = [64, 64]
    """
    path = write_recipe(tmp_path, more=more)
    plain, desk, paper = (load_recipe(path, scale) for scale in (None, "desk", "paper"))
    assert (plain.clients, plain.run.rounds, plain.data["examples"]) == (3, 2, 90)
    assert (desk.clients, desk.run.rounds, desk.data["examples"]) == (2, 1, 40)
    assert desk.data["classes"] == 4
    assert (plain.algorithm("ditto").strength, desk.algorithm("ditto").strength) == (0.1, 0.7)
    assert paper.run == Schedule(rounds=200, participation=0.1)
    assert paper.model == {"name": "mlp", "hidden": [64, 64]}


def test_changes_lie_over_the_scale_and_the_last_one_wins(tmp_path: Path):
    path = write_recipe(tmp_path, more="[scales.desk]\nrun.rounds = 7")
    changes = ["run.rounds=8", "run.participation=0.5", "run.rounds = 9"]
    assert load_recipe(path, "desk", changes).run == Schedule(rounds=9, participation=0.5)


@pytest.mark.parametrize(("text", "value"), [
    ("5", 5), ("-0.5", -0.5), ("1e-3", 0.001), ("true", True), ("false", False),
    ('"quoted words"', "quoted words"), ("'single'", "single"), ("", ""), ("bare", "bare"),
    ("two words", "two words"), ("a=b", "a=b"), ("it's", "it's"), ("[1, 2]", [1, 2]),
    ('["a", "b"]', ["a", "b"]), ("{ lr = 0.5 }", {"lr": 0.5}), (" 7 ", 7),
    ("2020-02-03", date(2020, 2, 3)), ("0x10", 16), ("1_000", 1000), ("cnn4", "cnn4"),
    ("path/to.file:Name", "path/to.file:Name"), ('say "no"', 'say "no"'),
    ("back\\slash", "back\\slash"),
])  # fmt: skip
def test_a_change_is_any_toml_value_or_bare_words(text, value, tmp_path: Path):
    given = load_recipe(write_recipe(tmp_path), changes=[f"scales.any.key={text}"])
    assert given.scales == {"any": {"key": value}}


@given(st.one_of(st.integers(-(2**60), 2**60), st.booleans(), st.floats(allow_nan=False)))
def test_every_number_that_can_be_written_can_be_set(value):
    text = json.dumps(value).replace("Infinity", "inf")
    given = load_recipe(find_recipe("demo"), changes=[f"scales.any.key={text}"])
    assert given.scales["any"]["key"] == value


def test_a_change_can_reach_a_key_with_a_dot_in_it(tmp_path: Path):
    path = write_recipe(tmp_path, ("[algorithms.ditto]", '[algorithms."v1.5"]\nkind = "ditto"'))
    given = load_recipe(path, changes=['algorithms."v1.5".strength=3'])
    assert given.algorithm("v1.5").strength == 3


def test_a_change_can_add_an_algorithm(tmp_path: Path):
    given = load_recipe(write_recipe(tmp_path), changes=["algorithms.fedper={}"])
    assert list(given.algorithms) == ["fedavg", "ditto", "fedper"]


@pytest.mark.parametrize("change", ["run.rounds", "", "rounds 5"])
def test_a_change_without_a_value_is_refused(change, tmp_path: Path):
    with pytest.raises(UsageError, match=r"write key=value, such as run\.rounds=5"):
        load_recipe(write_recipe(tmp_path), changes=[change])


@pytest.mark.parametrize("change", ["run..rounds=3", "=3", "a b=3"])
def test_a_change_of_what_is_no_key_is_refused(change, tmp_path: Path):
    with pytest.raises(UsageError, match=f"--set {change}"):
        load_recipe(write_recipe(tmp_path), changes=[change])


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("privacy={}", "key privacy.level is missing"),
        ("algorithms.fedavg.privacy={}", "key privacy.level is missing"),
    ],
)
def test_privacy_without_a_level_is_no_privacy_and_refused(change, told, tmp_path: Path):
    with pytest.raises(UsageError, match=told):
        load_recipe(write_recipe(tmp_path), changes=[change])


def test_merging_changes_neither_table():
    one = {"a": 1, "t": {"x": 1, "u": {"y": 1}}, "l": [1, 2]}
    two = {"b": 2, "t": {"u": {"z": 2}}, "l": [3], "a": {"now": "a table"}}
    before = json.dumps([one, two])
    assert merged(one, two) == {
        "a": {"now": "a table"},
        "b": 2,
        "t": {"x": 1, "u": {"y": 1, "z": 2}},
        "l": [3],
    }
    assert json.dumps([one, two]) == before


tables = st.recursive(
    st.integers() | st.text(max_size=3),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from("abc"), tables))
def test_nothing_and_itself_change_nothing(table):
    assert merged(table, {}) == merged({}, table) == merged(table, table) == table


def test_options_go_with_what_they_are_options_of():
    table = {
        "data": {"name": "kvasir", "size": 32},
        "partition": {"by": "dirichlet", "alpha": 0.1, "balanced": True, "test": 0.25},
    }
    changes = {"data": {"name": "cifar10"}, "partition": {"by": "classes"}}
    assert merged(table, changes) == {
        "data": {"name": "cifar10"},
        "partition": {"by": "classes", "test": 0.25},
    }
    same = {"data": {"name": "kvasir"}, "partition": {"by": "dirichlet", "alpha": 0.5}}
    assert merged(table, same) == {
        "data": {"name": "kvasir", "size": 32},
        "partition": {"by": "dirichlet", "alpha": 0.5, "balanced": True, "test": 0.25},
    }


FULL: dict[str, Any] = {
    "title": "Ünlike",
    "about": "two\nlines",
    "groups": [
        {"name": "a", "count": 2, "classes": [0, 1], "model": [{"name": "mlp"}, TINY["model"]]},
        {"name": "b", "count": 1, "partition": {"by": "classes", "classes_per_client": 3}},
        {"name": "c", "count": 1, "data": {"name": "synthetic_news"}, "tasks": ["classify"],
         "model": {"name": "textcnn"}},
    ],
    "data": TINY["data"],
    "partition": {"by": "dirichlet", "alpha": 0.1, "validation": 0.2, "test": 0.25},
    "model": TINY["model"],
    "batchnorm": "recompute",
    "run": {"rounds": 3, "participation": 0.5, "evaluate_every": 0, "dropout": 0.1,
            "stragglers": 0.2, "on_error": "retry", "retries": 5},
    "compute": {"threads": 2, "channels_last": False, "cohort_step": True},
    "local": {"lr": 0.3, "task_weights": {"classify": 2.0}, "optimizer": "adamw"},
    "algorithms": {"fedavg": {}, "other": {"kind": "ditto", "local": {"clip": 1.0}}},
    "seeds": [3, 1, 4],
    "published": [{"source": "s", "metric": "accuracy", "values": {"fedavg": 61.2}}],
    "claims": ["accuracy(other) > accuracy(fedavg)"],
    "scales": {"desk": {"run": {"rounds": 1}}},
}  # fmt: skip


@pytest.mark.parametrize("table", [TINY, FULL])
def test_what_is_written_down_reads_back_equal(table):
    given = recipe_of(table, "x.toml")
    written = given.table
    again = recipe_of({key: value for key, value in written.items() if value is not None}, "x.json")
    assert again == given
    assert again.table == written


@pytest.mark.parametrize("by", ["iid", "dirichlet", "classes", "quantity", "natural", "domain"])
def test_every_kind_of_cut_reads_back_equal(by):
    given = recipe(partition={"by": by})
    written = given.table
    assert recipe(partition=written["partition"]) == given


@pytest.mark.parametrize("name", list(shipped_recipes()))
def test_shipped_recipes_are_sound_at_every_scale(name):
    path = find_recipe(name)
    plain = load_recipe(path)
    assert plain.title
    for scale in plain.scales:
        assert load_recipe(path, scale).algorithms


@pytest.mark.parametrize("name", [name for name in shipped_recipes() if name.startswith("fedmh/")])
def test_models_of_small_scales_fit_the_images(name):
    path = find_recipe(name)
    for scale in load_recipe(path).scales:
        if "paper" not in scale:
            small = load_recipe(path, scale)
            image = torch.zeros(1, *small.data["size"])
            for model in small.model:
                build(ModelSpec.of(model), {"detect": Classification(2)}, image, 0)


def test_recipes_are_found_by_path_and_by_name(tmp_path: Path, monkeypatch):
    path = write_recipe(tmp_path)
    assert find_recipe(str(path)) == path
    assert find_recipe("demo") == find_recipe("demo.toml") == shipped_recipes()["demo"]
    monkeypatch.chdir(tmp_path)
    assert find_recipe("tiny.toml") == Path("tiny.toml")
    with pytest.raises(UsageError, match="no recipe 'dmo': did you mean 'demo'"):
        find_recipe("dmo")


def test_a_file_that_cannot_be_read(tmp_path: Path):
    with pytest.raises(UsageError, match=r"nothing\.toml cannot be read: No such file"):
        load_recipe(tmp_path / "nothing.toml")


def test_published_numbers_are_of_algorithms_in_the_recipe():
    paper = {"source": "Somebody 2020", "metric": "accuracy", "values": {"fedavgg": 61.2}}
    with pytest.raises(UsageError, match=r"Somebody 2020\): no algorithm 'fedavgg'.*'fedavg'"):
        recipe(published=[paper])


def test_adapters_are_built_once_and_not_for_every_client(monkeypatch):
    built = []
    make = TypeAdapter.__init__

    def counted(self: Any, *arguments: Any, **options: Any) -> None:
        built.append(arguments)
        make(self, *arguments, **options)

    def prepared(groups: int, clients: int) -> int:
        own = {"local": {"lr": 0.2}, "model": {"name": "mlp", "hidden": [4]}, "count": clients}
        alike = [{"name": f"g{number}", **own} for number in range(groups)]
        data = {"name": "synthetic_vectors", "examples": 2000, "features": 4, "classes": 2}
        split = {"min_examples": 1, "validation": 0.3, "test": 0.3}
        assemble(grouped(*alike, data=data, partition=split), 0, None)
        return len(built)

    prepared(1, 1)
    monkeypatch.setattr(TypeAdapter, "__init__", counted)
    assert prepared(2, 2) == 0
    assert prepared(100, 5) == 0


def test_tables_in_python_are_checked_as_in_a_file():
    given = {
        "data": {"name": "synthetic_vectors"},
        "model": {"name": "mlp"},
        "algorithms": {"fedavg": {}},
    }
    groups = [{"name": "left", "count": 2, "partition": {"by": "iid"}}]
    recipe = Recipe(
        groups=groups, partition={"by": "dirichlet", "alpha": 0.5}, run={"rounds": 3}, **given
    )
    assert recipe.run == Schedule(3)
    assert recipe.partition == Cut(by="dirichlet", alpha=0.5)
    assert recipe.groups[0].count == 2
    with pytest.raises(
        UsageError, match=r"unknown key run\.roundz: 'roundz': did you mean 'rounds'"
    ):
        Recipe(clients=2, run={"roundz": 3}, **given)
