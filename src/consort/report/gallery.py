"""Image galleries of a page: recovered images below their originals."""

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
"""The largest number of images shown."""


def gallery(found: Recovery) -> Html:
    """Originals above the recovered images, if the examples are images, and the mean scores."""
    shown = zip(found.originals[:MOST], found.found, found.scores, strict=False)
    pictures = [_pair(*one) for one in shown] if found.originals.ndim == 4 else []
    return join(
        [
            tag("div", *pictures, class_="pictures") if pictures else None,
            scores(found),
        ]
    )


def scores(found: Recovery) -> Html:
    """A table with the mean scores of the recovered examples and of the baseline."""
    lines = {"recovered": found.scores, "baseline": found.baseline}
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
    ssim = UNKNOWN if math.isnan(how.ssim) else f"{how.ssim:.2f}"
    return tag(
        "figure",
        picture(original, "original"),
        picture(found, "recovered"),
        tag("figcaption", f"{how.psnr:.1f} dB, SSIM {ssim}"),
    )


def picture(pixels: Tensor, name: str, most: int | None = None) -> Html:
    """An `img` element with the image inside.

    Args:
        pixels: An image (channels, height, width) with values from 0 to 1; grey unless it has
            three channels.
        name: The alternative text.
        most: Reduce the image to this number of colours, so that the page is smaller.
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
