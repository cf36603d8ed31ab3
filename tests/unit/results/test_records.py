"""What runs came to, written down for a repository."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consort.errors import Failure
from consort.results.records import (
    Provenance,
    Record,
    Score,
    add_records,
    of_one_processor,
    read_records,
    settings_digest,
)

ORIGIN = Provenance("fedavg", "FedAvg", 0, "0a1b", "12ab+", "0.1.0", "2.13.0", "A, processor", 3, 5)
RECORD = Record(
    ORIGIN,
    {"accuracy": 0.5, "bytes": 123456789012.0},
    {"a/seg": Score(0.25, True), "a/depth": Score(2.5, False)},
)


def of(**changes) -> Record:
    return replace(RECORD, origin=replace(ORIGIN, **changes))


def test_records_come_back(tmp_path):
    path = tmp_path / "new" / "desk.csv"
    add_records(path, [RECORD])
    assert read_records(path) == [RECORD]


@given(st.floats(allow_nan=False))
def test_numbers_keep_six_digits_and_whole_ones_all(value):
    from consort.results.records import _digits

    found = float(_digits(value)) if math.isfinite(value) else value
    assert found == value if value.is_integer() else found == pytest.approx(value, rel=1e-5)


def test_the_same_run_replaces_its_row_and_another_processor_has_its_own(tmp_path):
    path = tmp_path / "desk.csv"
    add_records(path, [RECORD, of(seed=1)])
    better = replace(of(seed=1, commit="new"), values={"accuracy": 0.75})
    add_records(path, [better, of(seed=1, cpu="B")])
    assert read_records(path) == [RECORD, better, of(seed=1, cpu="B")]
    assert of_one_processor(read_records(path)) == [RECORD, better]


def test_algorithms_may_have_values_of_their_own(tmp_path):
    path = tmp_path / "desk.csv"
    other = Record(replace(ORIGIN, algorithm="x"), {"eer": math.nan, "loss": 1.0}, {})
    add_records(path, [RECORD, other])
    first, second = read_records(path)
    assert first == RECORD
    assert math.isnan(second.values["eer"])
    assert second.values.keys() == {"eer", "loss"}


@pytest.mark.parametrize("text", ["a,b\n1,2\n", "algorithm,seed\nfedavg,x\n", '"'])
def test_another_file_is_refused_by_its_name(text, tmp_path):
    path = tmp_path / "desk.csv"
    path.write_text(text)
    with pytest.raises(Failure, match=r"desk\.csv: this is no file of"):
        add_records(path, [RECORD])
    assert path.read_text() == text


def test_the_digest_is_of_the_content_and_not_of_its_order():
    one = settings_digest({"a": 1, "b": [1, 2]})
    assert one == settings_digest({"b": (1, 2), "a": 1})
    assert one != settings_digest({"b": [2, 1], "a": 1})
