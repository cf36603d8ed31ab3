from itertools import pairwise

import pytest
import torch

from consort.domains.fingerprints.task import Verification
from consort.errors import UsageError
from consort.models.registry import ModelSpec, build, parameter_count

PAIR = torch.rand(2, 1, 32, 32, generator=torch.Generator().manual_seed(0))


def model(example=PAIR, **options):
    return build(
        ModelSpec.of({"name": "siamese", **options}), {"verify": Verification()}, example, 0
    )


def test_the_full_model_has_so_many_parameters():
    maps = [1, 32, 64, 128, 256]
    convolutions = sum(9 * a * b + 2 * b for a, b in pairwise(maps))
    full = model(torch.rand(2, 1, 96, 96))
    assert parameter_count(full) == convolutions + 256 * 128 + 128 == 421_216


def test_both_pictures_are_seen_alike():
    twin = model(scale=0.25).eval()
    swapped = twin(PAIR[None].flip(1))["verify"]
    assert torch.equal(twin(PAIR[None])["verify"].flip(1), swapped)
    assert twin(PAIR[None])["verify"].shape == (1, 2, 128)


def test_pairs_do_not_see_each_other_in_testing():
    twin = model(scale=0.25).eval()
    batch = torch.rand(3, *PAIR.shape)
    assert torch.allclose(twin(batch)["verify"][1:2], twin(batch[1:2])["verify"], atol=1e-6)


def test_with_group_norm_pairs_never_see_each_other():
    twin = model(scale=0.25, norm="group").train()
    batch = torch.rand(3, *PAIR.shape)
    assert torch.allclose(twin(batch)["verify"][1:2], twin(batch[1:2])["verify"], atol=1e-6)
    assert parameter_count(twin) == parameter_count(model(scale=0.25))


def test_what_it_cannot_take():
    with pytest.raises(UsageError, match="at least 16x16 pixels"):
        model(torch.rand(2, 1, 12, 40))
    with pytest.raises(UsageError, match="pairs of floating-point images"):
        model(torch.rand(1, 32, 32))
    with pytest.raises(UsageError, match="needs floating-point images, channels"):
        build(ModelSpec.of({"name": "cnn4"}), {"verify": Verification()}, PAIR, 0)
