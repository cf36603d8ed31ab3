"""AG News: short news items on four topics (Zhang, Zhao and LeCun 2015)."""

from __future__ import annotations

import csv
import html
import re
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from pydantic import Field

from consort.data.dataset import Dataset
from consort.data.examples import Examples
from consort.data.folder import not_found
from consort.domains.text.tokens import build_vocabulary, encode, words
from consort.errors import Failure
from consort.tasks import Classification

Items = list[tuple[int, str]]
"""Label and text of each item."""

TRAINING = ("ag_news_csv/train.csv", "text/ag_news/train_subset12000.tsv")
"""The file of training items in the published and in the reduced layout."""
PREFIX = 40
"""The number of letters and digits by which repeated stories are recognised."""


def ag_news(
    folder: Path | None,
    *,
    vocabulary: Annotated[int, Field(ge=3)] = 32_000,
    length: Annotated[int, Field(ge=1)] = 200,
) -> Dataset:
    """AG News as token ids, training and test items pooled, read from `ag_news_csv` on disk.

    Args:
        folder: The data folder.
        vocabulary: The number of token ids, including padding and the unknown word.
        length: The number of tokens per text; longer texts are cut, shorter ones padded.

    Returns:
        The data set with the task `classify`.

    Raises:
        UsageError: If the files are not in the folder.
        Failure: If a file is damaged.
    """
    training, test = _find(folder)
    items = without_repeats(read_items(test) + read_items(training))
    texts = [words(text) for _, text in items]
    rows = encode(texts, build_vocabulary(texts, vocabulary), length)
    labels = np.array([label for label, _ in items], dtype=np.int64)
    return Dataset(
        name="ag_news",
        examples=Examples(torch.from_numpy(rows), {"classify": torch.from_numpy(labels)}),
        tasks={"classify": Classification(4)},
        labels=labels,
        prepare=torch.Tensor.long,
    )


def without_repeats(items: Items) -> Items:
    """Keeps the first of all `items` that tell the same story.

    Training items repeat test items and each other, so that any split would leak otherwise.
    """
    stories: dict[str, tuple[int, str]] = {}
    for label, text in items:
        stories.setdefault(beginning(text), (label, text))
    return list(stories.values())


def beginning(text: str) -> str:
    """The first letters and digits of `text`; equal for items of the same story."""
    return re.sub(r"[^a-z0-9]", "", text.lower())[:PREFIX]


def read_items(path: Path) -> Items:
    """Reads the items of one file.

    Args:
        path: A .csv file (class, title, description) or a .tsv file (class, text).

    Returns:
        The label, from 0, and the text of each item.

    Raises:
        Failure: If the file is damaged.
    """
    delimiter = "\t" if path.suffix == ".tsv" else ","
    with path.open(encoding="utf-8", newline="") as file:
        try:
            rows = list(csv.reader(file, delimiter=delimiter))
        except (csv.Error, UnicodeDecodeError) as error:
            raise Failure(f"{path} is damaged: {error}") from error
    return [_item(path, number, row) for number, row in enumerate(rows, 1)]


def _item(path: Path, number: int, row: list[str]) -> tuple[int, str]:
    if len(row) < 2 or row[0] not in ("1", "2", "3", "4"):
        raise Failure(f"{path}, item {number}: a class from 1 to 4 and a text are expected")
    return int(row[0]) - 1, readable(" ".join(row[1:]))


def readable(text: str) -> str:
    """`text` with HTML entities decoded; in many items they have lost their ampersand."""
    return html.unescape(re.sub(r" (#\d+|quot|amp|lt|gt);", r"&\1;", text))


def _find(folder: Path | None) -> tuple[Path, Path]:
    for training in (folder / path for path in TRAINING) if folder else ():
        test = training.with_name("test.csv")
        if training.is_file() and test.is_file():
            return training, test
    layouts = tuple(f"{path} beside test.csv" for path in TRAINING)
    raise not_found("ag_news", folder, layouts, twin="synthetic_news")
