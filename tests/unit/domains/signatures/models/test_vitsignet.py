from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from consort.domains.signatures.models.vitsignet import ViTSigNet, ViTSigNet32
from consort.models.registry import parameter_count
from consort.models.vit import VisionTransformer


def block(width: int) -> int:
    """Two norms, four square maps, and two maps to and from four times the width."""
    return 4 * width + 4 * (width * width + width) + (8 * width * width + 4 * width + width)


def transformer(width: int, depth: int, patches: int, patch_pixels: int) -> int:
    tokens = width + (patches + 1) * width
    embedding = patch_pixels * width + width
    return tokens + embedding + depth * block(width) + 2 * width


@pytest.mark.parametrize(
    ("kind", "patches", "pixels", "total"),
    [
        (ViTSigNet, 14 * 14, 16 * 16, 105_698_536),
        (ViTSigNet32, 7 * 7, 32 * 32, 106_175_464),
    ],
)
def test_parameters_are_those_of_vit_b_with_a_thousand_logits_and_two_layers(
    kind, patches, pixels, total
):
    with torch.device("meta"):
        model = kind((1, 224, 224))
    logits = 768 * 1000 + 1000
    layers = 1000 * 6400 + 2 * 6400 + 6400 * 2048 + 2 * 2048
    vit = transformer(768, 12, patches, pixels)
    assert parameter_count(model.transformer) == vit
    assert parameter_count(model) == vit + logits + layers == total


def test_vit_b_16_has_its_well_known_size_with_three_channels():
    with torch.device("meta"):
        model = ViTSigNet((3, 224, 224))
    assert parameter_count(model.transformer) + parameter_count(model.logits) == 86_567_656


@pytest.mark.parametrize(
    ("scale", "heads", "logits", "hidden"), [(0.25, 3, 250, 1600), (0.01, 1, 10, 64)]
)
def test_scale_takes_fewer_heads_of_equal_width(scale, heads, logits, hidden):
    model = ViTSigNet((1, 64, 96), scale, features=7, depth=2)
    assert model.transformer.width == 64 * heads
    assert model.transformer.network.config.num_attention_heads == heads
    assert parameter_count(model.transformer) == transformer(64 * heads, 2, 4 * 6, 256)
    assert model.logits.out_features == logits
    assert [layer[0].out_features for layer in model.layers] == [hidden, 7]


@pytest.mark.parametrize("kind", [ViTSigNet, ViTSigNet32])
@pytest.mark.parametrize(("height", "width"), [(75, 110), (40, 32)])
def test_images_that_are_not_whole_patches_get_a_blank_margin(kind, height, width):
    patch = kind.patch
    whole = (-(-height // patch) * patch, -(-width // patch) * patch)
    model = kind((1, height, width), scale=0.05, features=6, depth=1)
    same = kind((1, *whole), scale=0.05, features=6, depth=1)
    same.load_state_dict(model.state_dict())
    images = torch.zeros(3, 1, *whole)
    images[..., :height, :width] = torch.rand(3, 1, height, width)
    assert torch.equal(model(images[..., :height, :width]), same(images))


def test_every_patch_and_its_place_matter():
    model = VisionTransformer((1, 32, 48), 16, 0.05, 2).eval()
    images = torch.rand(1, 1, 32, 48)
    token = model(images)
    assert token.shape == (1, 64)
    for row, column in [(0, 0), (0, 2), (1, 1), (1, 2)]:
        changed = images.clone()
        changed[..., 16 * row : 16 * row + 16, 16 * column : 16 * column + 16] = 0
        assert not torch.allclose(model(changed), token)
    assert not torch.allclose(model(images.roll(16, -1)), token)


def test_the_token_of_one_block_is_that_of_plain_functions():
    model = VisionTransformer((1, 16, 32), 16, 0.2, 1).eval()
    network, images = model.network, torch.rand(2, 1, 16, 32)
    for parameter in network.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    weights = dict(network.named_parameters())
    width, heads = model.width, model.width // 64

    def of(part: str) -> tuple[torch.Tensor, torch.Tensor]:
        """The weight whose name contains the part, and its bias."""
        (name,) = (n for n in weights if part in n and n.endswith("weight"))
        return weights[name], weights[name.replace("weight", "bias")]

    def normed(x: torch.Tensor, part: str) -> torch.Tensor:
        return F.layer_norm(x, (width,), *of(part), eps=1e-6)

    kernel, shift = of("projection")
    patches = images.unfold(3, 16, 16).permute(0, 3, 1, 2, 4).reshape(2, 2, 256)
    tokens = torch.cat(
        [
            weights["embeddings.cls_token"].expand(2, 1, -1),
            patches @ kernel.reshape(width, 256).T + shift,
        ],
        1,
    )
    tokens = tokens + weights["embeddings.position_embeddings"]
    inputs = normed(tokens, "before")
    query, key, value = (
        F.linear(inputs, *of(part)).view(2, 3, heads, 64).transpose(1, 2)
        for part in ("q_proj", "k_proj", "v_proj")
    )
    attention = (query @ key.transpose(2, 3) / 8).softmax(3)
    tokens = tokens + F.linear(
        (attention @ value).transpose(1, 2).reshape(2, 3, width), *of("o_proj")
    )
    hidden = F.gelu(F.linear(normed(tokens, "after"), *of("fc1")))
    tokens = tokens + F.linear(hidden, *of("fc2"))
    last = F.layer_norm(
        tokens, (width,), weights["layernorm.weight"], weights["layernorm.bias"], 1e-6
    )
    torch.testing.assert_close(model(images), last[:, 0], atol=1e-4, rtol=1e-4)
