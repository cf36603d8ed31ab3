"""What can be listed, with a line about each."""

from __future__ import annotations

import pytest
import torch

from consort.cli.inspecting import Listing
from consort.cli.listing import describe
from consort.core.plugins import entries, find
from consort.experiment.loading import load_recipe
from consort.experiment.shipped import shipped_recipes
from consort.tasks.classification import Classification


@pytest.mark.parametrize("what", list(Listing))
def test_everything_has_a_line_that_fits_the_screen(what):
    described = describe(what.value)
    assert described
    for name, text in described.items():
        assert text.strip() == text != ""
        assert "\n" not in text
        assert len(name) + len(text) < 120


def test_recipes_have_their_titles():
    described = describe("recipes")
    assert list(described) == list(shipped_recipes())
    for name, path in shipped_recipes().items():
        assert described[name] == load_recipe(path).title


def test_tasks_are_there():
    assert find("tasks", "classification") is Classification
    for name in entries("tasks"):
        assert isinstance(find("tasks", name), type)


def test_every_metric_of_a_task_is_listed():
    meter = Classification(2).meter()
    meter.update(torch.eye(2), torch.tensor([0, 1]))
    assert set(meter.compute()) <= set(describe("metrics"))
