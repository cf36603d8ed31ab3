import time

import numpy as np
import pytest
import torch

from consort.data.registry import load_dataset
from consort.domains.text.ag_news import ag_news, beginning, read_items, readable, without_repeats
from consort.errors import Failure, UsageError

LONG = "a headline that is repeated word by word in both of the files"


@pytest.fixture
def official(tmp_path):
    folder = tmp_path / "ag_news_csv"
    folder.mkdir()
    (folder / "train.csv").write_text(
        f'"1","{LONG.title()}","told otherwise"\n'
        '"2","He said ""goal""","the match, the match"\n'
        '"4","Chips","small chips"\n'
    )
    (folder / "test.csv").write_text(f'"3","{LONG}","told here"\n')
    return tmp_path


def test_the_official_files(official):
    dataset = ag_news(official, vocabulary=6, length=5)
    assert dataset.labels.tolist() == [2, 1, 3], "the training item that repeats a test item goes"
    assert dataset.examples.targets["classify"].tolist() == [2, 1, 3]
    # numbered: the (3 times), chips and match (twice), then the first of the others, a
    assert dataset.examples.inputs[1].tolist() == [1, 1, 1, 2, 4]
    assert dataset.examples.inputs[2].tolist() == [3, 1, 3, 0, 0]
    assert dataset.prepare(dataset.examples.inputs).dtype == torch.int64


def test_a_vocabulary_bounds_all_word_numbers(official):
    for vocabulary in (3, 4, 100):
        assert ag_news(official, vocabulary=vocabulary).examples.inputs.max() < vocabulary


def test_an_impossible_vocabulary_is_refused(official):
    with pytest.raises(UsageError, match="vocabulary = 2: input should be greater"):
        load_dataset("ag_news", 0, official, vocabulary=2)


def test_the_reduced_file(tmp_path):
    folder = tmp_path / "text/ag_news"
    folder.mkdir(parents=True)
    (folder / "test.csv").write_text('"3","Chips","small chips"\n')
    (folder / "train_subset12000.tsv").write_text('2\t"He said ""goal"", and so on"\n')
    assert read_items(folder / "train_subset12000.tsv") == [(1, 'He said "goal", and so on')]
    assert ag_news(tmp_path).labels.tolist() == [2, 1]


def test_a_training_file_alone_is_not_enough(official):
    (official / "ag_news_csv/test.csv").unlink()
    with pytest.raises(UsageError, match=r"ag_news_csv/train\.csv beside test\.csv"):
        ag_news(official)


def test_entities_become_readable_with_and_without_their_ampersand():
    assert readable("Turner #39;s  #36;5 quot;deal quot; &lt;b&gt; he said; that") == (
        'Turner\'s $5"deal" <b> he said; that'
    )


def test_repeats_are_found_whatever_their_spelling():
    items = [(0, LONG), (1, LONG.upper().replace(" ", " - ") + "!"), (2, "x" + LONG)]
    assert without_repeats(items) == [items[0], items[2]]


@pytest.mark.parametrize("line", ['"5","a","b"', '"one","a","b"', '"1"', ""])
def test_a_damaged_line_is_named(official, line):
    (official / "ag_news_csv/train.csv").write_text(f'"1","a","b"\n{line}\n')
    with pytest.raises(Failure, match=r"train\.csv, item 2: a class from 1 to 4"):
        ag_news(official)


def test_a_file_that_is_not_text_is_named(official):
    (official / "ag_news_csv/train.csv").write_bytes(b'"1","\xff\xfe","b"\n')
    with pytest.raises(Failure, match=r"train\.csv is damaged"):
        ag_news(official)


def test_real_news(real_data):
    start = time.perf_counter()
    dataset = ag_news(real_data)
    assert time.perf_counter() - start < 30
    assert dataset.examples.inputs.shape[1] == 200
    assert dataset.examples.inputs.max() < 32_000
    assert np.bincount(dataset.labels).min() > 0.9 * np.bincount(dataset.labels).max()


def test_no_real_item_is_left_twice(real_data):
    folder = real_data / "text/ag_news"
    if not (folder / "train_subset12000.tsv").is_file():
        pytest.skip("the reduced AG News is not in CONSORT_DATA")
    test, train = (read_items(folder / name) for name in ("test.csv", "train_subset12000.tsv"))
    shared = {beginning(text) for _, text in test} & {beginning(text) for _, text in train}
    assert shared, "the leak is in the files"
    kept = [beginning(text) for _, text in without_repeats(test + train)]
    assert len(kept) == len(set(kept))
    assert len(kept) > 0.95 * len(test + train)
