"""The similarity of predicted and true sets of key points."""

from __future__ import annotations

import torch
from torch import Tensor


def keypoint_similarity(found: Tensor, true: Tensor, sigmas: Tensor) -> Tensor:
    """COCO's object keypoint similarity (OKS).

    Args:
        found: Predicted figures x joints x (x, y, …).
        true: True figures x joints x (x, y, visibility, area); joints of visibility 0 are ignored.
        sigmas: COCO's constant of each joint: how precisely people annotate it.

    Returns:
        Predicted figures x true figures.
    """
    there, area = true[..., 2] > 0, true[..., 3].amax(1)
    squares = (found[:, None, :, :2] - true[None, :, :, :2]).square().sum(-1)
    reach = 2 * (2 * sigmas).square() * area.clamp(min=torch.finfo(area.dtype).eps)[:, None]
    near = torch.exp(-squares / reach)
    return (near * there).sum(-1) / there.sum(-1)
