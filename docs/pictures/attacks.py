"""Draws attacks.png: what attackers make of generated fingerprints, with and without defences.

python docs/pictures/attacks.py
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import torch
from PIL import Image, ImageDraw
from torch import Tensor

from consort.attacks.imprint import Imprint, imprinted
from consort.attacks.recovery import as_pictures
from consort.attacks.rescale import rescaled
from consort.attacks.similarity import matched, similarity
from consort.attacks.traffic import Update
from consort.attacks.victim import Victim
from consort.core.params import Params
from consort.data.examples import Examples
from consort.experiment.assembly import assemble
from consort.experiment.loading import load_recipe
from consort.experiment.shipped import find_recipe

PAIRS, BETA, CLIP, NOISE, ZOOM, LEFT, GAP = 2, 0.5, 1.0, 1.0, 2, 170, 4
FEW = ["clients=1", "data.fingers=24", "partition.test=0.5"]


def victim(scale: str) -> Victim:
    """The only client of a small federation."""
    recipe = load_recipe(find_recipe("affr/table5"), scale, FEW)
    federation = assemble(recipe, 0, None).federation
    (client,) = federation.client_ids
    tasks, fresh = federation.members[client].tasks, federation.blueprint(client).fresh
    return Victim(client, fresh, tasks, federation.data(client), 0)


def noisy(someone: Victim, batch: Examples, layer: Imprint) -> list[Tensor]:
    """The layer's gradients as DP-SGD sends them: each pair's cut to a length, and noise."""
    total = [torch.zeros_like(layer.sort.weight), torch.zeros_like(layer.sort.bias)]
    for row in range(len(batch)):
        own = someone.imprint_gradients(layer, batch.rows(row, 1))
        length = torch.cat([part.flatten() for part in own]).norm().item()
        total = [t + part / max(1.0, length / CLIP) for t, part in zip(total, own, strict=True)]
    return [(t + NOISE * CLIP * torch.randn_like(t)) / len(batch) for t in total]


def read(grads: Sequence[Tensor], wanted: Tensor) -> Tensor:
    """Recovered pictures, each in the place of the one it is nearest to; black if there is none."""
    found = imprinted(*grads).view(-1, *wanted.shape[1:]).clamp(0, 1)
    placed = torch.zeros_like(wanted)
    for place, original in matched(found, wanted):
        placed[original] = found[place]
    return placed


def inverted(someone: Victim, batch: Examples) -> Tensor:
    """Pictures from the gradient of one step on each pair alone."""
    rows = []
    for row in range(len(batch)):
        one = replace(someone, data=replace(someone.data, train=batch.rows(row, 1)))
        model = one.initial_model().eval()
        names, params = zip(*model.named_parameters(), strict=True)
        grads = torch.autograd.grad(
            one.loss(model, batch.inputs[row : row + 1], batch.rows(row, 1).targets), params
        )
        update = Update(Params.of(model), Params(dict(zip(names, grads, strict=True))), True)
        rows.append(one.inverted(update, 300).inputs)
    return as_pictures(torch.cat(rows))


def draw(lines: dict[str, Tensor], originals: Tensor, path: Path) -> None:
    """One line of pictures for each attack, with its name and its mean scores."""
    side = originals.shape[-1] * ZOOM
    sheet = Image.new("L", (LEFT + len(originals) * (side + GAP), len(lines) * (side + GAP)), 255)
    pen = ImageDraw.Draw(sheet)
    for row, (name, pictures) in enumerate(lines.items()):
        top = row * (side + GAP)
        scores = [similarity(p, o) for p, o in zip(pictures, originals, strict=True)]
        told = f"{fmean(s.psnr for s in scores):.1f} dB, SSIM {fmean(s.ssim for s in scores):.2f}"
        pen.multiline_text(
            (4, top + side // 3), f"{name}\n{told if row else ''}", fill=0, spacing=6
        )
        print(f"{name.replace(chr(10), ' ')}: {told}")
        for column, picture in enumerate(pictures):
            grey = Image.fromarray((picture[0].clamp(0, 1) * 255).round().byte().numpy())
            grey = grey.resize((side, side), Image.Resampling.NEAREST)
            sheet.paste(grey, (LEFT + column * (side + GAP), top))
    sheet.save(path, optimize=True)


def main() -> None:
    """All lines of the picture."""
    torch.manual_seed(0)
    clear, blurred = victim("synthetic_clear"), victim("synthetic")
    batch, hidden = (v.data.train.rows(0, PAIRS) for v in (clear, blurred))
    originals, seen = as_pictures(batch.inputs), as_pictures(hidden.inputs)
    lines = {"original": originals}
    layers = [someone.imprint_layer() for someone in (clear, blurred)]
    lines["malicious server\n(imprint)"] = read(
        clear.imprint_gradients(layers[0], batch), originals
    )
    lines["inverted gradient\nof one pair"] = inverted(clear, batch)
    taken = read(blurred.imprint_gradients(layers[1], hidden), seen)
    lines[f"imprint, FP-DFSN\nbeta = {BETA}"] = taken
    lines["the same,\ndivided by 1 - beta"] = rescaled(taken, BETA)
    lines[f"imprint, DP-SGD\nclip {CLIP}, noise {NOISE}"] = read(
        noisy(clear, batch, layers[0]), originals
    )
    draw(lines, originals, Path(__file__).with_suffix(".png"))


if __name__ == "__main__":
    main()
