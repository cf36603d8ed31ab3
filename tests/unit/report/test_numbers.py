"""How numbers are written."""

from __future__ import annotations

import math

import pytest

from consort.report.numbers import UNKNOWN, amount_text, count, natural, score, summary, words
from consort.results.summary import Summary


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.000123456, "0.000123"),
        (0.0512, "0.0512"),
        (1.5, "1.50"),
        (12.345, "12.3"),
        (123.4, "123"),
        (12345.6, "12,346"),
        (math.nan, UNKNOWN),
    ],
)
def test_amounts_have_about_three_digits(value, text):
    assert amount_text(value) == text


def test_scores_have_three_decimals():
    assert (score(0.81249).text, score(0.81249).value) == ("0.812", 0.81249)
    assert score(math.nan).text == UNKNOWN


def test_summaries_show_their_deviation_over_several_seeds():
    assert summary(Summary(0.8, 0.02, 3)).text == "0.800 ± 0.020"
    assert summary(Summary(0.8, 0.0, 1)).text == "0.800"
    assert summary(Summary(math.nan, math.nan, 3)).text == UNKNOWN


def test_counts_and_words():
    assert count(1234567).text == "1,234,567"
    assert words("balanced_accuracy") == "balanced accuracy"


def test_names_sort_by_the_numbers_in_them():
    names = ["b-1", "a-10", "a-2", "7", "a"]
    assert sorted(names, key=natural) == ["7", "a", "a-2", "a-10", "b-1"]
