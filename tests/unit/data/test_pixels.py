import torch

from consort.data.pixels import scale


def test_every_byte_has_its_value():
    images = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16)
    expected = (torch.arange(256) / 255 - 0.5) / 0.5
    scaled = scale(images)
    assert scaled.dtype == torch.float32
    assert torch.allclose(scaled.flatten(), expected, atol=1e-6)
    assert (scaled.min(), scaled.max()) == (-1, 1)
    assert images.dtype == torch.uint8


def test_the_memory_format_stays():
    images = torch.zeros(2, 3, 4, 4, dtype=torch.uint8).to(memory_format=torch.channels_last)
    assert scale(images).is_contiguous(memory_format=torch.channels_last)
