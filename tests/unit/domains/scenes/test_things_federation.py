"""Clients that look for things, for joints and for stuff, in one federation."""

from __future__ import annotations

from functools import cache

import pytest
import torch

from consort.core.params import Params
from consort.data.examples import Examples
from consort.domains.scenes.synthetic.scenes import synthetic_scenes
from consort.experiment.loading import recipe_of
from consort.experiment.preparation import prepare_run
from consort.models.registry import ModelSpec, build

METRICS = {"panoptic": "pq", "instances": "ap", "keypoints": "ap", "stuff": "miou"}
TINY = {"depths": [1, 1], "channels": 8}
LARGER = {"widths": [16, 32], "channels": 48}
MODELS = [
    {"name": "conv_pyramid", "widths": [4, 8], "channels": 8},
    {"name": "resnet_pyramid", "widths": [8, 12], "stem": 8, **TINY},
    {"name": "swin_pyramid", "embedding": 8, "heads": [1, 2], "window": 4, **TINY},
]


def recipe(*tasks):
    """A group with every one of these tasks, and one with all of them."""
    groups = [{"name": "all", "tasks": list(tasks)}, *({"name": t, "tasks": [t]} for t in tasks)]
    return recipe_of(
        {
            "title": "things",
            "groups": [{**group, "count": 1} for group in groups],
            "data": {"name": "synthetic_scenes", "examples": 16 * len(groups), "size": 32},
            "model": MODELS[0],
            "run": {"rounds": 1},
            "local": {"lr": 0.02, "batch": 4, "optimizer": "adamw", "augment": True},
            "algorithms": {"fedhca2": {}, "fedavg_per_task": {}},
        },
        "things.toml",
    )


@pytest.mark.parametrize("algorithm", ["fedhca2", "fedavg_per_task"])
def test_they_learn_together_from_a_recipe(algorithm, tmp_path):
    history = prepare_run(recipe(*METRICS), algorithm, 0, tmp_path).go()
    tested = {
        (row.client, row.task): row.metric for row in history if row.metric in METRICS.values()
    }
    for task, metric in METRICS.items():
        assert tested[f"{task}-0", task] == metric
        assert tested["all-0", task] == metric
    assert all(0 <= row.value <= 1 for row in history if row.metric in METRICS.values())


@cache
def scenes():
    dataset = synthetic_scenes(1, examples=12, size=32)
    return dataset.tasks, Examples(
        dataset.prepare(dataset.examples.inputs), dataset.examples.targets
    )


@pytest.mark.parametrize("table", MODELS, ids=lambda table: table["name"])
def test_every_task_can_be_learnt_by_every_model_that_makes_maps(table):
    tasks, examples = scenes()
    model = build(ModelSpec.of(table), tasks, examples.inputs[0], 0)
    outputs = model(examples.inputs)
    losses = {
        name: task.loss(outputs[name], examples.targets[name]) for name, task in tasks.items()
    }
    sum(losses.values()).backward()
    for name, task in tasks.items():
        assert outputs[name].shape == (12, task.outputs, 32, 32)
        own = Params.of(model).without("buffers").only(f"heads.{name}", f"decoders.{name}")
        grads = [value.grad for key, value in model.named_parameters() if key in own]
        assert len(grads) == len(own) > 0
        assert all(bool(grad.isfinite().all()) and bool(grad.any()) for grad in grads)
        meter = task.meter()
        meter.update(outputs[name].detach(), examples.targets[name])
        assert task.metric in meter.compute()


def learnt_scenes(name, rows, steps=80):
    """The metrics of a small model in scenes that it has been trained on for so many steps."""
    tasks, examples = scenes()
    inputs, target = examples.inputs[rows], examples.targets[name][rows]
    model = build(ModelSpec.of(MODELS[0] | LARGER), {name: tasks[name]}, inputs[0], 0)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        tasks[name].loss(model(inputs)[name], target).backward()
        optimizer.step()
    meter = tasks[name].meter()
    meter.update(model(inputs)[name].detach(), target)
    return meter.compute()


@pytest.mark.parametrize(
    ("name", "rows"), [("panoptic", [5, 7]), ("instances", [6, 7]), ("keypoints", [6, 9])]
)
def test_things_and_joints_that_were_seen_often_are_found(name, rows):
    assert learnt_scenes(name, rows)[METRICS[name]] > 0.7
