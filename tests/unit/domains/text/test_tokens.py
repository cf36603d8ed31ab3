from consort.domains.text.tokens import build_vocabulary, encode, words


def test_words():
    assert words("Don't panic: 3.5% of U.S. stocks\\fell!") == (
        ["don't", "panic", "3", "5", "of", "u", "s", "stocks", "fell"]
    )
    assert words("…") == []


def test_the_most_frequent_words_first_and_ties_by_the_alphabet():
    texts = [["b", "a", "c"], ["c", "d"], ["c"]]
    assert build_vocabulary(texts, 10) == {"c": 2, "a": 3, "b": 4, "d": 5}
    assert build_vocabulary(reversed(texts), 4) == {"c": 2, "a": 3}


def test_rows_are_cut_padded_and_know_what_they_do_not_know():
    rows = encode([["a", "b", "a", "a"], ["x"], []], {"a": 2, "b": 3}, 3)
    assert rows.tolist() == [[2, 3, 2], [1, 0, 0], [0, 0, 0]]
