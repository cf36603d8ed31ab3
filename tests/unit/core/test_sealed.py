"""Tables and journals that notice damage of themselves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consort.core.sealed import EMPTY, Journal, read_json, write_json
from consort.errors import Failure

TABLE = {"seed": 3, "rate": 0.1, "clients": {"a": [1, 2], "é": None}, "nan": float("inf")}
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=50, deadline=None)
@given(table=st.dictionaries(st.text().filter(lambda key: key != "digest"), plain, max_size=4))
def test_any_table_comes_back(table, tmp_path_factory):
    path = tmp_path_factory.mktemp("tables") / "a.json"
    write_json(path, table)
    assert read_json(path) == (table, True)


def test_no_flipped_bit_of_a_table_changes_what_is_read(tmp_path: Path):
    path = tmp_path / "run.json"
    write_json(path, TABLE)
    whole = path.read_bytes()
    noticed = 0
    for position in range(len(whole)):
        for bit in range(8):
            damaged = bytearray(whole)
            damaged[position] ^= 1 << bit
            path.write_bytes(damaged)
            try:
                found, _ = read_json(path)
            except Failure:
                noticed += 1
            else:  # the name of the digest was hit, or an escaped letter is written otherwise
                assert {key: found[key] for key in TABLE} == TABLE
    assert noticed > 0.9 * 8 * len(whole)


def test_a_table_of_an_older_version_has_no_digest(tmp_path: Path):
    path = tmp_path / "run.json"
    path.write_text(json.dumps(TABLE))
    assert read_json(path) == (TABLE, False)


def test_a_table_that_is_read_and_written_has_one_digest(tmp_path: Path):
    write_json(tmp_path / "a", TABLE)
    write_json(tmp_path / "b", json.loads((tmp_path / "a").read_text()))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize("content", ["", "3", "[]", "null", '{"a": ', "\udcff"])
def test_what_is_no_table_is_damaged(tmp_path: Path, content: str):
    (tmp_path / "a").write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(Failure, match="a is damaged"):
        read_json(tmp_path / "a")


def written(path: Path, *entries: object) -> list[tuple[int, str]]:
    journal, marks = Journal(path), [EMPTY]
    for entry in entries:
        journal.append(entry)
        marks.append(journal.mark)
    return marks


def test_a_journal_is_read_up_to_a_mark(tmp_path: Path):
    marks = written(tmp_path / "a", ["one", 1], "two\n", {"three": None})
    for count, mark in enumerate(marks):
        journal = Journal(tmp_path / "a")
        assert list(journal.replay(mark)) == [["one", 1], "two\n", {"three": None}][:count]
        assert journal.mark == mark
    assert list(Journal(tmp_path / "a").replay()) == [["one", 1], "two\n", {"three": None}]
    assert list(Journal(tmp_path / "none").replay()) == []


def test_a_journal_goes_on_where_it_was_cut(tmp_path: Path):
    marks = written(tmp_path / "a", 1, 2, 3)
    journal = Journal(tmp_path / "a")
    assert list(journal.replay(marks[1])) == [1]
    journal.append(4)
    assert list(Journal(tmp_path / "a").replay(journal.mark)) == [1, 4]
    with pytest.raises(Failure, match="a is damaged or an older one"):
        list(Journal(tmp_path / "a").replay(marks[2]))


def test_a_crash_at_any_byte_loses_only_what_was_being_written(tmp_path: Path):
    path = tmp_path / "a"
    marks = written(path, 1, 2)
    whole = path.read_bytes()
    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        complete = sum(0 < end <= length for end, _ in marks)
        journal = Journal(path)
        assert list(journal.replay()) == [1, 2][:complete]
        journal.append("more")
        assert list(Journal(path).replay()) == [*[1, 2][:complete], "more"]


def test_lines_in_another_order_are_not_taken(tmp_path: Path):
    marks = written(tmp_path / "a", 1, 2, 3)
    one, two, three = (tmp_path / "a").read_bytes().splitlines(keepends=True)
    (tmp_path / "a").write_bytes(one + three + two)
    assert list(Journal(tmp_path / "a").replay()) == [1]
    with pytest.raises(Failure, match="a is damaged or an older one"):
        list(Journal(tmp_path / "a").replay(marks[-1]))
