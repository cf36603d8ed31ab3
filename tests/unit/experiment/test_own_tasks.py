"""Losses and metrics of a user by name in a recipe, and a partition with a seed of its own."""

from __future__ import annotations

import pytest

from consort.errors import UsageError
from consort.experiment.assembly import assemble
from consort.experiment.loading import load_recipe
from consort.experiment.preparation import prepare_run

RECIPE = """
clients = 3
[data]
name = "synthetic_vectors"
classes = 3
examples = 150
[partition]
by = "dirichlet"
seed = 4
[model]
name = "mlp"
[tasks.classify]
loss = "mine.py:focal"
metrics = ["mine.py:hits"]
metric = "hits"
[run]
rounds = 2
[local]
lr = 0.2
transform = "mine.py:noisy"
[algorithms.fedavg]
"""
MINE = """
import torch
from torch.nn import functional as F

def focal(output, target):
    chance = F.log_softmax(output, 1).gather(1, target[:, None])
    return (-(1 - chance.exp()) ** 2 * chance).mean()

def hits(output, target):
    return (output.argmax(1) == target).float().mean()

def noisy(inputs):
    return inputs + 0.01 * torch.randn_like(inputs)
"""


@pytest.fixture
def path(tmp_path):
    (tmp_path / "own.toml").write_text(RECIPE)
    (tmp_path / "mine.py").write_text(MINE)
    return tmp_path / "own.toml"


def test_a_recipe_names_a_loss_a_metric_and_a_transform(path):
    run = prepare_run(load_recipe(path), "fedavg", 0, path.parent / "run")
    history = list(run.go())
    hits, accuracy = (
        [row.value for row in history if row.metric == metric and row.split == "test"]
        for metric in ("hits", "accuracy")
    )
    assert hits == pytest.approx(accuracy)
    tasks = [member.tasks["classify"] for member in run.federation.members.values()]
    assert tasks[0] is tasks[1]
    assert tasks[0].metric == "hits"
    again = prepare_run(load_recipe(path), "fedavg", 0, path.parent / "again")
    again.go()
    assert again.server.model.equals(run.server.model)
    plain = load_recipe(path, changes=["tasks={}"])
    assert plain.tasks["classify"]  # a table is laid over a table


@pytest.mark.parametrize(("change", "message"), [
    ("tasks.classify.loss=mine.py:focl", "tasks.classify: .*mine.py defines no 'focl'"),
    ("tasks.classify.loss=focal", "tasks.classify: there is no loss 'focal': did you mean"),
    ("tasks.classify.los=focal", "unknown key tasks.classify.los: 'los': did you mean 'loss'"),
    ("tasks.classify.metrics=[3]", "key tasks.classify.metrics"),
    ("local.transform=mine.py:nosy", "mine.py defines no 'nosy'"),
    ("partition.seed=x", "key partition.seed: it should be a valid integer"),
])  # fmt: skip
def test_what_is_wrong_names_its_key(path, change, message):
    with pytest.raises(UsageError, match=message):
        load_recipe(path, changes=[change])


def test_a_task_that_the_data_do_not_have_is_refused(path):
    recipe = load_recipe(path, changes=["tasks.classifi.loss=cross_entropy"])
    with pytest.raises(UsageError) as caught:
        assemble(recipe, 0, None)
    assert str(caught.value) == (
        "tasks: synthetic_vectors has no task 'classifi': did you mean 'classify'? (there are: "
        "classify)"
    )


def test_a_partition_with_a_seed_of_its_own_is_the_same_in_every_run(path):
    sizes = [
        [len(share.train) for share in assemble(load_recipe(path, changes=change), seed, None)
         .shares.values()]
        for seed, change in ((0, ()), (1, ()), (1, ["partition.seed=5"]))
    ]  # fmt: skip
    assert sizes[0] == sizes[1] != sizes[2]


def test_data_of_a_function_need_not_be_wrapped(path):
    (path.parent / "points.py").write_text(
        "import torch\nfrom torch.utils.data import TensorDataset\n"
        "def points(seed: int):\n"
        "    x = torch.randn(90, 4, generator=torch.Generator().manual_seed(seed))\n"
        "    return TensorDataset(x, (x.sum(1) > 0).long())\n"
    )
    changes = ["data.name=points.py:points", "partition.by=iid"]
    text = RECIPE.replace("tasks.classify", "tasks.target")
    path.write_text(text)
    run = prepare_run(load_recipe(path, changes=changes), "fedavg", 0, path.parent / "run")
    assert list(run.federation.members["client-0"].tasks) == ["target"]
    run.go()


@pytest.mark.parametrize(("change", "message"), [
    ("x, (x.sum(1) > 0).long() + 1",
     "the targets 'target' are 1 to 2, but classes are numbered from 0: subtract 1 from them, or "
     "say what the task is"),
    ("x / 0 * 0, (x.sum(1) > 0).long()",
     "data set 'points': inputs are not finite (NaN or infinite) in 90 of 90 examples, first in "
     "example 0: repair or remove these examples"),
])  # fmt: skip
def test_data_that_cannot_be_trained_on_are_named_before_anything_runs(path, change, message):
    (path.parent / "points.py").write_text(
        "import torch\ndef points(seed: int):\n"
        "    x = torch.randn(90, 4, generator=torch.Generator().manual_seed(seed))\n"
        f"    return {change}\n"
    )
    path.write_text(RECIPE.replace("tasks.classify", "tasks.target"))
    changes = ["data.name=points.py:points", "partition.by=iid"]
    with pytest.raises(UsageError) as caught:
        assemble(load_recipe(path, changes=changes), 0, None)
    assert str(caught.value).endswith(message)
