"""How similar a figure that was found is to a true one."""

from __future__ import annotations

import torch
from torch import Tensor


def keypoint_similarity(found: Tensor, true: Tensor, sigmas: Tensor) -> Tensor:
    """COCO's OKS of figures found (rows) and true ones (columns).

    Both are figures by joints by numbers: x and y first, and of a true one then how well it is
    seen (0 is not at all: it does not count) and the area of the figure. `sigmas` say how
    precisely people know each joint.
    """
    there, area = true[..., 2] > 0, true[..., 3].amax(1)
    squares = (found[:, None, :, :2] - true[None, :, :, :2]).square().sum(-1)
    reach = 2 * (2 * sigmas).square() * area.clamp(min=torch.finfo(area.dtype).eps)[:, None]
    near = torch.exp(-squares / reach)
    return (near * there).sum(-1) / there.sum(-1)
