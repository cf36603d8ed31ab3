"""Several models as one answer as each of them does."""

from __future__ import annotations

import pytest
import torch
from tests.helpers import assert_same

from consort.data.examples import Examples, Splits
from consort.domains.scenes.tasks.geometry import Depth, Normals
from consort.domains.scenes.tasks.segmentation import Segmentation
from consort.models.combined import combined
from consort.models.registry import ModelSpec, build
from consort.training.scoring import score

TASKS = {"segment": Segmentation(5), "depth": Depth(), "normals": Normals()}
SMALL = ModelSpec.of({"name": "conv_pyramid", "widths": [4, 8], "channels": 8})


def models(count=2, batchnorm="recompute"):
    return [build(SMALL, TASKS, torch.zeros(3, 16, 16), seed, batchnorm) for seed in range(count)]


def examples(count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.rand(count, 3, 16, 16, generator=generator)
    targets = {
        "segment": torch.randint(5, (count, 16, 16), generator=generator),
        "depth": 1 + numbers[:, 0],
        "normals": torch.nn.functional.normalize(numbers, dim=1),
    }
    return Examples(numbers, targets)


def test_every_task_is_answered_by_its_model():
    first, second = (model.eval() for model in models())
    both = combined({"segment": second, "depth": first, "normals": second}).eval()
    inputs = examples(3).inputs
    expected = second(inputs) | {"depth": first(inputs)["depth"]}
    assert_same(both(inputs), expected)
    assert both(inputs, ["depth"]).keys() == {"depth"}


def test_one_model_for_all_tasks_is_that_model():
    (model,) = models(1)
    assert combined(dict.fromkeys(TASKS, model)) is model


@pytest.mark.parametrize("batchnorm", ["average", "local", "recompute"])
def test_scores_are_those_of_each(batchnorm):
    first, second = models(batchnorm=batchnorm)
    data = Splits(examples(6), examples(4, 1), examples(5, 2))
    apart = [score(model, TASKS, data) for model in (first, second)]
    both = combined({"segment": first, "depth": second, "normals": first})
    assert both.batchnorm == batchnorm
    found = score(both, TASKS, data)
    for split in ("validation", "test"):
        expected = apart[0][split]["tasks"] | {"depth": apart[1][split]["tasks"]["depth"]}
        assert found[split]["tasks"] == expected
