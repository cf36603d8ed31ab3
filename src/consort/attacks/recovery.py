"""Scores recovered examples against the originals and against a baseline guess."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean

import torch
from torch import Tensor

from consort.attacks.similarity import RECOGNISED, Perceptual, Similarity, matched, similarity

MARGIN = 1.0
"""Decibels by which a recovered example must exceed the baseline to count."""


@dataclass(frozen=True)
class Recovery:
    """Recovered examples with the originals they are matched with; values go from 0 to 1."""

    found: Tensor
    originals: Tensor
    scores: list[Similarity]
    baseline: list[Similarity]
    """The scores of the baseline guess for the same originals."""
    total: int
    """The number of originals, found or not."""
    cosine: float = math.nan
    """The cosine between the gradient of the examples and the update, for an inversion."""

    @property
    def recognised(self) -> int:
        """The number of recognisable examples that are also better than the baseline."""
        pairs = zip(self.scores, self.baseline, strict=True)
        return sum(
            score.psnr >= max(RECOGNISED, baseline.psnr + MARGIN) for score, baseline in pairs
        )

    @property
    def gain(self) -> float:
        """The mean PSNR above that of the baseline, in decibels."""
        return fmean(s.psnr - b.psnr for s, b in zip(self.scores, self.baseline, strict=True))


def match_and_score(
    found: Tensor,
    seen: Tensor,
    originals: Tensor,
    guess: Tensor,
    bounds: tuple[float, float],
    cosine: float = math.nan,
    perceptual: Perceptual | None = None,
) -> Recovery:
    """Matches recovered examples with originals and scores them.

    Args:
        found: The recovered examples.
        seen: The examples as the model saw them, for matching.
        originals: The same examples before any obfuscation, for scoring.
        guess: The baseline, one example that needs no message.
        bounds: The range of values.
        cosine: The cosine between the gradient of the examples and the update.
        perceptual: An additional distance between images.
    """
    theirs, near, own, baseline = (
        scaled(as_pictures(part), bounds) for part in (found, seen, originals, guess)
    )
    pairs = matched(theirs, near)
    chosen = torch.tensor([place for place, _ in pairs])
    sought = torch.tensor([place for _, place in pairs])
    baseline = baseline.mean(0, keepdim=True).expand(len(pairs), *own.shape[1:])
    return score_pairs(theirs[chosen], own[sought], baseline, perceptual, len(own), cosine)


def score_pairs(
    found: Tensor,
    originals: Tensor,
    baseline: Tensor,
    perceptual: Perceptual | None = None,
    total: int = 0,
    cosine: float = math.nan,
) -> Recovery:
    """Scores recovered examples that are in the order of the originals.

    Args:
        found: The recovered examples, with values from 0 to 1.
        originals: The originals.
        baseline: The baseline guess for each original.
        perceptual: An additional distance between images.
        total: The number of originals in all; those given if it is 0.
        cosine: The cosine between the gradient of the examples and the update.
    """
    scores, guesses = (
        [similarity(*pair, perceptual) for pair in zip(part, originals, strict=True)]
        for part in (found, baseline)
    )
    return Recovery(found, originals, scores, guesses, total or len(originals), cosine)


def as_pictures(inputs: Tensor) -> Tensor:
    """Both images of every pair, one after the other; other inputs are returned unchanged."""
    return inputs.flatten(0, 1) if inputs.ndim == 5 else inputs


def scaled(inputs: Tensor, bounds: tuple[float, float]) -> Tensor:
    """Scales values from `bounds` to 0 to 1; values outside are clipped."""
    low, high = bounds
    return ((inputs - low) / (high - low)).clamp(0, 1)


def bounds_of(inputs: Tensor) -> tuple[float, float]:
    """The smallest and the largest value, never equal."""
    low, high = inputs.min().item(), inputs.max().item()
    return low, max(high, low + 1e-6)
