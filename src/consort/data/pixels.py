"""Images are stored as bytes and scaled only for the client that uses them."""

from __future__ import annotations

import torch
from torch import Tensor


def scale(images: Tensor) -> Tensor:
    """Bytes 0…255 as floats from -1 to 1: mean 0.5 and deviation 0.5 of values in [0, 1]."""
    return images.to(torch.float32).div_(127.5).sub_(1)
