"""What a client runs for others: every option that is a file is known to be one."""

from __future__ import annotations

import re
import typing
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from inspect import signature
from pathlib import Path
from typing import Any, Literal

import pytest
from tests.institutions import STUDY

from consort.core.bounds import LocalFile, is_local_file
from consort.core.permission import FILES, permitting
from consort.core.plugins import Plugin, entries, find
from consort.deployment.policy import FILE, Judge, Policy, own_names
from consort.deployment.study import Study
from consort.errors import Refused, UsageError
from consort.experiment.loading import load_recipe
from consort.experiment.recipe import Recipe
from consort.experiment.tables import merged
from consort.models.registry import ModelSpec
from consort.training.local import LocalTraining

KINDS = [kind.name for kind in fields(Plugin) if kind.name not in ("metrics", "tasks")]
PATHS = re.compile(r"weights?$|path|file|folder|dir(ectory)?$|checkpoint|pretrained|cache|url")
TEXTS = {
    "LocalTraining.augment", "LocalTraining.optimizer", "LocalTraining.transform",
    "LocalTraining.optimizer_options", "LocalTraining.task_weights", "Verifying.unseen",
    "Unseen.data", "tensors.targets",
}  # fmt: skip
"""Options that hold texts, but no files: names that are looked up, and names of tables."""


def leaves(hint: Any) -> Iterator[Any]:
    """The types that a type is made of; `LocalFile` and choices of texts are left whole."""
    if hint == LocalFile or typing.get_origin(hint) is Literal:
        yield hint
    elif typing.get_origin(hint) is typing.Annotated:
        yield from leaves(typing.get_args(hint)[0])
    elif typing.get_args(hint) or isinstance(hint, list):  # the parameters of a Callable
        for inner in typing.get_args(hint) or hint:
            yield from leaves(inner)
    else:
        yield hint


def options_of(made: Any) -> Iterator[tuple[str, str, Any]]:
    """Owner, name and type of every option, those of nested dataclasses included."""
    if is_dataclass(made):
        hints = typing.get_type_hints(made, include_extras=True)
        given = {f.name: hints[f.name] for f in fields(made) if f.init}
    else:
        function = made.__init__ if isinstance(made, type) else made
        hints = typing.get_type_hints(function, include_extras=True)
        given = {name: hints[name] for name in signature(function).parameters if name in hints}
    for name, hint in given.items():
        yield made.__name__, name, hint
        for leaf in leaves(hint):
            if is_dataclass(leaf) and leaf is not made:
                yield from options_of(leaf)


def all_options() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for kind in KINDS:
        for name in entries(kind):
            for owner, option, hint in options_of(find(kind, name)):
                provided = kind == "datasets" and option in ("seed", "folder")
                if not provided and kind not in ("augmentations", "balancings"):
                    found[f"{owner}.{option}"] = hint
    return found


def test_every_option_that_can_be_a_path_is_declared_to_be_one():
    """All registered models, data sets, algorithms, evaluations, obfuscations, protections."""
    options = all_options()
    assert len(options) > 150
    files = {name for name, hint in options.items() if hint == LocalFile}
    assert files >= {"ConvPyramid.weights", "SwinPyramid.weights", "signature_folder.path"}
    for name, hint in options.items():
        kinds = set(leaves(hint))
        assert not any(isinstance(k, type) and issubclass(k, Path) for k in kinds), name
        if name in files | TEXTS:
            continue
        assert (str not in kinds and Any not in kinds) or name.endswith(".companion"), name
        if PATHS.search(name.partition(".")[2]):
            assert all(typing.get_origin(k) is Literal or k in (bool, int, float) for k in kinds)


def test_the_option_of_a_class_or_function_is_known_to_be_a_file():
    assert is_local_file(find("models", "conv_pyramid"), "weights")
    assert is_local_file(find("datasets", "signature_folder"), "path")
    assert not is_local_file(find("models", "conv_pyramid"), "channels")


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    (tmp_path / "study.toml").write_text(STUDY + "[algorithms.fedavg]\n")
    return load_recipe(tmp_path / "study.toml")


def changed(recipe: Recipe, changes: dict[str, Any]) -> Study:
    study = Study.of(recipe, "fedavg", 0)
    return Study(merged(study.recipe, changes), "fedavg", 0, study.version, study.digest)


def test_without_a_file_all_that_consort_brings_is_allowed_and_nothing_else(tmp_path):
    policy = Policy.read(tmp_path)
    assert policy == Policy()
    assert policy.approve == "ask"
    for kind in KINDS:
        for name in entries(kind):
            reads = kind == "datasets" and "folder" in signature(find(kind, name)).parameters
            assert policy.permits(kind, name) == (not reads and name != "attack"), name
        for name in ("", "my_lab", "os:system", "x.py:Y", "../x", f"{kind}x"):
            assert not policy.permits(kind, name)
    assert not policy.permits(FILES, "x")


def test_a_list_allows_what_it_names(tmp_path):
    (tmp_path / FILE).write_text(
        'approve = "listed"\nalgorithms = ["fedavg"]\ndata = ["cedar"]\n'
        'models = ["os:system", "x"]\n[limits]\nrounds = 5\n'
    )
    policy = Policy.read(tmp_path)
    assert policy.permits("algorithms", "fedavg")
    assert not policy.permits("algorithms", "ditto")
    assert policy.permits("datasets", "cedar")
    assert not policy.permits("datasets", "synthetic_vectors")
    assert not policy.permits("models", "os:system")  # code is never named by a server
    assert not policy.permits("models", "x")
    assert policy.permits("protections", "privacy")
    assert policy.limits.rounds == 5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", "unknown key .*policy.toml.x"),
        ('approve = "always"', "approve"),
        ("algorithms = 3", "algorithms"),
        ("[limits]\nround = 1", "did you mean 'rounds'"),
        ("[limits]\nrounds = 0", "rounds"),
        ("approve =", "is not valid TOML"),
    ],
)
def test_a_policy_that_is_wrong_stops_the_client(text, message, tmp_path):
    (tmp_path / FILE).write_text(text)
    with pytest.raises(UsageError, match=message) as caught:
        Policy.read(tmp_path)
    assert "policy.toml" in str(caught.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"run": {"rounds": 10**12}},
        {"run": {"tuning_epochs": 10**9}},
        {"local": {"epochs": 10**9}},
        {"local": {"steps": 10**9}},
        {"algorithms": {"fedavg": {"kind": "ditto", "personal_epochs": 10**9}}},
        {"algorithms": {"fedavg": {"local": {"epochs": 101}}}},
        {"compute": {"threads": 10**5}},
        {"model": {"name": "mlp", "hidden": [10**12]}},
        {"model": {"name": "resnet", "depths": [2, 201]}},
        {"verification": {"repetitions": 101}},
    ],
)
def test_absurd_numbers_are_refused(changes, recipe):
    with pytest.raises(Refused, match=r"its policy does not allow .* above \d+$"):
        Policy().check(changed(recipe, changes))


def test_data_that_fill_the_memory_are_refused(recipe):
    data = {"name": "synthetic_signatures", "users": 10**5, "size": [1000, 1000]}
    changes = {"verification": {}, "unseen": {"x": {"data": data}}}
    with pytest.raises(Refused, match="a data set that the server names is larger"):
        Policy().check(changed(recipe, changes))
    data |= {"users": 50, "size": [150, 220]}
    Policy().check(changed(recipe, changes))


def test_usual_numbers_are_not(recipe):
    Policy().check(Study.of(recipe, "fedavg", 0))


def test_a_judge_permits_the_owners_own_things_and_those_of_the_policy():
    brings = {
        "data": {"name": "signature_folder", "path": "mine"},
        "model": [{"name": "own.py:Net"}, {"name": "conv_pyramid", "weights": "w.safetensors"}],
        "local": {"augment": "own.py:vary"},
    }
    judge = Judge(Policy(), own_names(brings))
    for kind, name in (
        ("datasets", "signature_folder"), (FILES, "mine"), ("models", "own.py:Net"),
        (FILES, "w.safetensors"), ("augmentations", "own.py:vary"), ("models", "mlp"),
    ):  # fmt: skip
        judge(kind, name)
    for kind, name in (
        ("algorithms", "own.py:Net"), ("datasets", "own.py:Net"), ("datasets", "cedar"),
        (FILES, "/etc/passwd"), ("models", "os:system"),
    ):  # fmt: skip
        with pytest.raises(Refused, match="its policy does not allow"):
            judge(kind, name)


def test_a_judge_that_trusts_remembers():
    judge = Judge(Policy(), set(), trusting=True)
    with permitting(judge):
        ModelSpec.of({"name": "conv_pyramid", "weights": "w.safetensors"})
        judge.trusting = False
        ModelSpec.of({"name": "conv_pyramid", "weights": "w.safetensors"})
        with pytest.raises(Refused, match="name files"):
            ModelSpec.of({"name": "conv_pyramid", "weights": "v.safetensors"})
    ModelSpec.of({"name": "conv_pyramid", "weights": "v.safetensors"})  # the owner himself


def test_names_of_augmentations_are_judged_as_well():
    with permitting(Judge(Policy(), set())):
        LocalTraining(augment="scenes")
        with pytest.raises(Refused, match="to name code"):
            LocalTraining(augment="os:system")
