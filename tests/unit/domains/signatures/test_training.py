from __future__ import annotations

import pytest
import torch
from tests.helpers import tiny_federation

from consort.data.examples import Examples, Splits
from consort.domains.signatures.tasks import Detection, Identification, claimed_user, identity
from consort.domains.signatures.training import balanced_signatures, varied_signatures
from consort.errors import UsageError
from consort.training.client import Client
from consort.training.local import LocalTraining

USERS, GENUINE = torch.tensor([0, 0, 0, 1, 1]), torch.tensor([1, 0, 0, 1, 1])

TASKS = {"identify": Identification(2), "detect": Detection()}


def signatures():
    images = torch.rand(5, 1, 24, 36, generator=torch.Generator().manual_seed(0))
    return Examples(images, {"identify": identity(USERS, GENUINE), "detect": GENUINE})


def generator():
    return torch.Generator().manual_seed(1)


def client(examples):
    empty = Splits(examples, examples, examples)
    model = tiny_federation().blueprint("c0").model
    return Client("c0", model, TASKS, empty, {}, generator(), 1, 1)


def test_genuine_and_forged_are_equally_many_and_the_rest_is_untouched():
    found = balanced_signatures(signatures(), TASKS, generator())
    users = claimed_user(found.targets["identify"])
    assert torch.equal(found.inputs[:5], signatures().inputs)
    assert ((users == 0) & (found.targets["detect"] == 1)).sum() == 2
    assert len(found) == 6


def test_every_image_is_varied_and_nothing_else():
    many = signatures().take(torch.arange(5).repeat(8))
    found, again = (varied_signatures(many, TASKS, generator()) for _ in "ab")
    assert torch.equal(found.inputs, again.inputs)
    changed = (found.inputs != many.inputs).flatten(1).any(1)
    assert 0.4 < changed.float().mean() < 0.9  # expected: 0.62
    assert found.inputs.shape == many.inputs.shape
    assert torch.equal(found.targets["identify"], many.targets["identify"])


def test_local_training_varies_only_if_it_is_asked_to():
    here = client(signatures())
    assert LocalTraining().prepared(here) is here.data.train
    assert len(LocalTraining(balance=True).prepared(here)) == 6
    assert not LocalTraining(balance=True).fits_cohorts
    many = client(signatures().take(torch.arange(5).repeat(8)))
    first, second = (LocalTraining(augment=True).prepared(many).inputs for _ in range(2))
    assert not torch.equal(first, second)


def test_other_data_are_refused():
    other = Examples(torch.zeros(2, 1, 8, 8), {"classify": torch.zeros(2, dtype=torch.int64)})
    with pytest.raises(UsageError, match="tasks identify and detect"):
        balanced_signatures(other, TASKS, generator())
    with pytest.raises(UsageError, match="tasks identify and detect"):
        varied_signatures(other, TASKS, generator())
