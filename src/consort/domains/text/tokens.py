"""Text as rows of word numbers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

PADDING = 0
UNKNOWN = 1
FIRST_WORD = 2

_WORD = re.compile(r"[a-z0-9]+(?:'[a-z]+)?")


def words(text: str) -> list[str]:
    """The lower-case words and numbers of a text, in order."""
    return _WORD.findall(text.lower())


def build_vocabulary(texts: Iterable[Sequence[str]], size: int) -> dict[str, int]:
    """Numbers for the most frequent words; of equally frequent ones the alphabet decides.

    All numbers are below `size`, which counts padding and the unknown word too.
    """
    counts = Counter(word for text in texts for word in text)
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    return {word: number for number, word in enumerate(ranked[: size - FIRST_WORD], FIRST_WORD)}


def encode(
    texts: Sequence[Sequence[str]], vocabulary: dict[str, int], length: int
) -> NDArray[np.int32]:
    """One row of `length` word numbers per text: the beginning of it, or padded at the end."""
    rows = np.full((len(texts), length), PADDING, dtype=np.int32)
    for row, text in zip(rows, texts, strict=True):
        numbers = [vocabulary.get(word, UNKNOWN) for word in text[:length]]
        row[: len(numbers)] = numbers
    return rows
