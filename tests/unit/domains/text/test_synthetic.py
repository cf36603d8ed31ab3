import numpy as np

from consort.domains.text.synthetic import synthetic_news


def word_counts(rows, vocabulary):
    counts = np.zeros((len(rows), vocabulary))
    np.add.at(counts, (np.arange(len(rows))[:, None], rows), 1)
    return counts[:, 2:]


def test_texts_are_padded_at_the_end_only():
    rows = synthetic_news(0, length=30).examples.inputs.numpy()
    lengths = (rows > 0).sum(1)
    assert lengths.min() == 15
    assert lengths.max() == 30
    assert (rows[np.arange(30) >= lengths[:, None]] == 0).all()
    assert (rows[np.arange(30) < lengths[:, None]] >= 2).all()


def test_a_vocabulary_bounds_all_word_numbers():
    dataset = synthetic_news(0, classes=3, per_class=50, vocabulary=50)
    assert dataset.examples.inputs.max() == 49
    assert np.bincount(dataset.labels).tolist() == [50] * 3


def test_topics_can_be_told_but_not_perfectly():
    dataset = synthetic_news(0, per_class=1000)
    counts = word_counts(dataset.examples.inputs.numpy(), 2000)
    train = 3000
    totals = np.stack(
        [counts[:train][dataset.labels[:train] == topic].sum(0) + 0.1 for topic in range(4)]
    )
    scores = counts[train:] @ np.log(totals / totals.sum(1, keepdims=True)).T
    accuracy = (scores.argmax(1) == dataset.labels[train:]).mean()
    assert 0.7 < accuracy < 0.97
