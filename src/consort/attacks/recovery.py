"""Recovered examples beside their originals, and beside a guess that needs no message."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean

import torch
from torch import Tensor

from consort.attacks.similarity import RECOGNISED, Perceptual, Similarity, matched, similarity

AHEAD = 1.0
"""Decibels by which a recovered example must be nearer than a blind guess to count."""


@dataclass(frozen=True)
class Recovery:
    """Recovered examples with the originals they come nearest to; values go from 0 to 1."""

    found: Tensor
    originals: Tensor
    scores: list[Similarity]
    blind: list[Similarity]
    """The scores of the guess for the same originals."""
    sought: int
    """How many originals there were to find."""
    cosine: float = math.nan
    """How well the examples explain an update, where that was what was looked for."""

    @property
    def recognised(self) -> int:
        """Examples that are near their originals, and nearer than the blind guess."""
        pairs = zip(self.scores, self.blind, strict=True)
        return sum(score.psnr >= max(RECOGNISED, blind.psnr + AHEAD) for score, blind in pairs)

    @property
    def gain(self) -> float:
        """Decibels by which they are nearer to the originals than the blind guess, on average."""
        return fmean(s.psnr - b.psnr for s, b in zip(self.scores, self.blind, strict=True))


def recovery(
    found: Tensor,
    seen: Tensor,
    originals: Tensor,
    guess: Tensor,
    bounds: tuple[float, float],
    cosine: float = math.nan,
    perceptual: Perceptual | None = None,
) -> Recovery:
    """Lays each recovered example beside an original, with the least error in all.

    Inputs are examples as models see them, and the originals of these, if obfuscation came
    between; the guess is one such example.
    """
    theirs, near, own, blind = (
        scaled(as_pictures(part), bounds) for part in (found, seen, originals, guess)
    )
    pairs = matched(theirs, near)
    chosen = torch.tensor([place for place, _ in pairs])
    sought = torch.tensor([place for _, place in pairs])
    blind = blind.mean(0, keepdim=True).expand(len(pairs), *own.shape[1:])
    return beside(theirs[chosen], own[sought], blind, perceptual, len(own), cosine)


def beside(
    found: Tensor,
    originals: Tensor,
    blind: Tensor,
    perceptual: Perceptual | None = None,
    sought: int = 0,
    cosine: float = math.nan,
) -> Recovery:
    """The scores of examples from 0 to 1 that are in the right order already."""
    scores, guesses = (
        [similarity(*pair, perceptual) for pair in zip(part, originals, strict=True)]
        for part in (found, blind)
    )
    return Recovery(found, originals, scores, guesses, sought or len(originals), cosine)


def as_pictures(inputs: Tensor) -> Tensor:
    """Both pictures of every pair, one after the other; other inputs as they are."""
    return inputs.flatten(0, 1) if inputs.ndim == 5 else inputs


def scaled(inputs: Tensor, bounds: tuple[float, float]) -> Tensor:
    """Values from 0 to 1; what lies outside the bounds is cut off."""
    low, high = bounds
    return ((inputs - low) / (high - low)).clamp(0, 1)


def bounds_of(inputs: Tensor) -> tuple[float, float]:
    """The least and the greatest value, a little apart in any case."""
    low, high = inputs.min().item(), inputs.max().item()
    return low, max(high, low + 1e-6)
