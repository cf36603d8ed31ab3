"""Small pictures inside a page: what was recovered, under the original it comes nearest to."""

from __future__ import annotations

import base64
import io
import math
from statistics import fmean

from torch import Tensor

from consort.attacks.recovery import Recovery
from consort.attacks.similarity import Similarity
from consort.report.html import Html, join, table, tag
from consort.report.numbers import UNKNOWN, score

MOST = 8
"""Pictures that are shown."""


def gallery(found: Recovery) -> Html:
    """Originals above what was recovered, if they are pictures, and the scores of all."""
    shown = zip(found.originals[:MOST], found.found, found.scores, strict=False)
    pictures = [_pair(*one) for one in shown] if found.originals.ndim == 4 else []
    return join(
        [
            tag("div", *pictures, class_="pictures") if pictures else None,
            scores(found),
        ]
    )


def scores(found: Recovery) -> Html:
    """One line for what was recovered and one for the blind guess."""
    lines = {"recovered": found.scores, "blind guess": found.blind}
    shown = {"mse": "MSE", "psnr": "PSNR (dB)", "ssim": "SSIM"}
    if not all(math.isnan(one.lpips) for one in found.scores):
        shown["lpips"] = "LPIPS"
    columns = {
        title: (lambda line, name=name: score(_mean(line[1], name)))
        for name, title in shown.items()
    }
    return table(lines.items(), {"": lambda line: line[0]} | columns)


def _mean(values: list[Similarity], name: str) -> float:
    return fmean(float(getattr(value, name)) for value in values)


def _pair(original: Tensor, found: Tensor, how: Similarity) -> Html:
    likeness = UNKNOWN if math.isnan(how.ssim) else f"{how.ssim:.2f}"
    return tag(
        "figure",
        picture(original, "original"),
        picture(found, "recovered"),
        tag("figcaption", f"{how.psnr:.1f} dB, SSIM {likeness}"),
    )


def picture(pixels: Tensor, name: str, most: int | None = None) -> Html:
    """An image (channels, height, width) with values from 0 to 1; grey unless it has three.

    With at `most` so many colours it is smaller.
    """
    from PIL import Image

    colours = pixels if len(pixels) == 3 else pixels.mean(0, keepdim=True)
    data = (colours.clamp(0, 1) * 255).round().byte().permute(1, 2, 0).numpy()
    image = Image.fromarray(data if data.shape[2] == 3 else data[:, :, 0])
    if most and image.getcolors(most) is None:
        image = image.quantize(most)
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    source = "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
    return tag("img", src=source, alt=name)
