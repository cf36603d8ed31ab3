"""Augmentations by name: a new one is a function and a line of a plug-in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from tests.helpers import tiny_federation
from tests.installed import IMPORT, put_package

from consort.algorithms.fedavg import FedAvg
from consort.data.examples import Examples
from consort.domains.scenes.tasks.segmentation import Segmentation
from consort.domains.signatures.tasks import Detection
from consort.errors import UsageError
from consort.experiment.loading import recipe_of
from consort.run.run import Run
from consort.run.schedule import Schedule
from consort.tasks import Classification
from consort.training.augmentation import augmentation_of, balancing_of
from consort.training.client import Client
from consort.training.local import LocalTraining

SOURCE = (
    IMPORT
    + """
from dataclasses import replace
import torch

def shaken(examples, tasks, generator):
    noise = torch.randn(examples.inputs.shape, generator=generator)
    return replace(examples, inputs=examples.inputs + noise)

def halved(examples, tasks, generator, repeat):
    return examples.take(torch.arange(0, len(examples), 2))

number = 3
plugin = Plugin(
    augmentations={"shaken": "my_lab:shaken", "number": "my_lab:number"},
    balancings={"halved": "my_lab:halved"},
)
"""
)


@dataclass(frozen=True)
class Shaken(Classification):
    augmentation: ClassVar[str] = "shaken"
    balancing: ClassVar[str] = "halved"


def client(task, seed=1):
    federation = tiny_federation(1)
    generator = torch.Generator().manual_seed(seed)
    model = federation.blueprint("c0").model
    return Client("c0", model, {"classify": task}, federation.data("c0"), {}, generator, 1, 1)


@pytest.fixture
def lab(site):
    put_package(site, "my-lab", SOURCE)


@pytest.mark.usefixtures("lab")
@pytest.mark.parametrize(("task", "augment"), [
    (Shaken(3), True), (Classification(3), "shaken"), (Classification(3), "my_lab:shaken"),
])  # fmt: skip
def test_a_plugins_augmentation_is_used_where_tasks_or_recipes_name_it(task, augment):
    here, again, other = client(task), client(task), client(task, seed=2)
    found = [LocalTraining(augment=augment).prepared(c).inputs for c in (here, again, other)]
    assert not found[0].equal(here.data.train.inputs)
    assert found[0].equal(found[1])
    assert not found[0].equal(found[2])


@pytest.mark.usefixtures("lab")
def test_examples_are_balanced_before_they_are_varied():
    here = client(Shaken(3))
    found = LocalTraining(balance=True, augment=True).prepared(here)
    assert len(found) == -(-len(here.data.train) // 2)
    assert len(LocalTraining(balance=True, augment="shaken").prepared(here)) == len(found)


@pytest.mark.usefixtures("lab")
def test_it_reaches_training_in_workers_as_well():
    def values(augment, workers):
        algorithm = FedAvg(LocalTraining(lr=0.1, augment=augment))
        history = Run(tiny_federation(), algorithm, Schedule(rounds=2), workers=workers).go()
        return [row.value for row in history if row.metric == "loss"]

    assert values("shaken", 1) == values("shaken", 2)
    assert values("shaken", 1) != values(False, 1)


def test_an_unknown_name_is_refused_before_anything_runs():
    with pytest.raises(UsageError, match=r"no augmentation 'scene': did you mean 'scenes'\?"):
        LocalTraining(augment="scene")
    table = {
        "clients": 2,
        "data": {"name": "synthetic_vectors"},
        "model": {"name": "mlp"},
        "local": {"augment": "scene"},
        "algorithms": {"fedavg": {}},
    }
    with pytest.raises(UsageError, match=r"here: .*no augmentation 'scene'"):
        recipe_of(table, "here")


@pytest.mark.usefixtures("lab")
def test_what_is_no_function_is_refused():
    with pytest.raises(UsageError, match="number is not a function that augments examples"):
        LocalTraining(augment="number")


@pytest.mark.parametrize("tasks", [
    {"tell": Classification(3)},
    {"tell": Segmentation(3), "detect": Detection()},
])  # fmt: skip
def test_tasks_that_name_none_or_several_are_refused(tasks):
    names = ", ".join(tasks)
    expected = rf"local\.augment: the tasks {names} name no augmentation, or several: set"
    with pytest.raises(UsageError, match=expected):
        augmentation_of(tasks, True)


def test_tasks_that_name_none_go_along_with_those_that_do():
    tasks = {"tell": Classification(3), "detect": Detection()}
    assert augmentation_of(tasks, True) is augmentation_of({"detect": Detection()}, True)
    assert balancing_of(tasks) is balancing_of({"detect": Detection()})


@pytest.mark.parametrize("task", [Classification(3), Segmentation(3)])
def test_balance_is_refused_where_tasks_name_no_way(task):
    with pytest.raises(UsageError, match=r"local\.balance: the tasks tell name no balancing"):
        balancing_of({"tell": task})


def test_without_either_the_examples_stay_as_they_are():
    here = client(Classification(3))
    found = LocalTraining().prepared(here)
    assert isinstance(found, Examples)
    assert found is here.data.train
