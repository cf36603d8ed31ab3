"""Converting texts to rows of token ids."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

PADDING = 0
"""Fills up short texts."""
UNKNOWN = 1
"""Stands for words that are not in the vocabulary."""
FIRST_WORD = 2
"""The id of the most frequent word."""

_WORD = re.compile(r"[a-z0-9]+(?:'[a-z]+)?")


def words(text: str) -> list[str]:
    """The lower-case words and numbers of `text`, in order."""
    return _WORD.findall(text.lower())


def build_vocabulary(texts: Iterable[Sequence[str]], size: int) -> dict[str, int]:
    """Assigns ids to the most frequent words; ties are broken alphabetically.

    Args:
        texts: Texts as lists of words.
        size: The number of ids, including padding and the unknown word.

    Returns:
        The id of each word, below `size`.
    """
    counts = Counter(word for text in texts for word in text)
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    return {word: number for number, word in enumerate(ranked[: size - FIRST_WORD], FIRST_WORD)}


def encode(
    texts: Sequence[Sequence[str]], vocabulary: dict[str, int], length: int
) -> NDArray[np.int32]:
    """Converts texts to token ids.

    Args:
        texts: Texts as lists of words.
        vocabulary: The id of each known word.
        length: The number of tokens per row; longer texts are cut, shorter ones padded.

    Returns:
        One row of ids per text.
    """
    rows = np.full((len(texts), length), PADDING, dtype=np.int32)
    for row, text in zip(rows, texts, strict=True):
        numbers = [vocabulary.get(word, UNKNOWN) for word in text[:length]]
        row[: len(numbers)] = numbers
    return rows
