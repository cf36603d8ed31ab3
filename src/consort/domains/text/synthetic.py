"""Synthetic word sequences to classify by topic: the synthetic counterpart of AG News."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from consort.core.randomness import derive
from consort.data.dataset import Dataset
from consort.data.examples import Examples
from consort.domains.text.tokens import FIRST_WORD, PADDING
from consort.tasks import Classification

_TOPICAL = (0.05, 0.3)
"""The range of the share of topical words in a text; the other words are common to all topics."""


def synthetic_news(
    seed: int,
    *,
    classes: Annotated[int, Field(ge=2)] = 4,
    per_class: Annotated[int, Field(ge=1)] = 500,
    vocabulary: Annotated[int, Field(ge=10)] = 2000,
    length: Annotated[int, Field(ge=4)] = 40,
) -> Dataset:
    """Texts as token ids, drawn from words common to all topics and from words of one topic.

    Args:
        seed: The seed of all random choices.
        classes: The number of topics.
        per_class: The number of texts per topic.
        vocabulary: The number of token ids, including padding and the unknown word.
        length: The length of the longest texts; the shortest have half of it.

    Returns:
        The data set with the task `classify`.
    """
    rng = np.random.default_rng(derive(seed, "synthetic_news"))
    labels = rng.permutation(np.repeat(np.arange(classes), per_class))
    rows = _texts(rng, labels, classes, vocabulary - FIRST_WORD, length)
    return Dataset(
        name="synthetic_news",
        examples=Examples(
            torch.from_numpy(rows.astype(np.int32)), {"classify": torch.from_numpy(labels)}
        ),
        tasks={"classify": Classification(classes)},
        labels=labels,
        prepare=torch.Tensor.long,
    )


def _texts(
    rng: np.random.Generator, labels: NDArray[np.int64], classes: int, words: int, length: int
) -> NDArray[np.int64]:
    """Words follow Zipf's law; each topic has the same law with its own ranking of the words."""
    ranks = np.cumsum(1 / np.arange(1, words + 1))
    drawn = np.searchsorted(ranks / ranks[-1], rng.random((len(labels), length)))
    orders = np.stack([rng.permutation(words) for _ in range(classes)])
    share = rng.uniform(*_TOPICAL, (len(labels), 1))
    topical = rng.random(drawn.shape) < share
    rows = np.where(topical, orders[labels[:, None], drawn], drawn) + FIRST_WORD
    lengths = rng.integers(length // 2, length, (len(labels), 1), endpoint=True)
    return np.where(np.arange(length) < lengths, rows, PADDING)
