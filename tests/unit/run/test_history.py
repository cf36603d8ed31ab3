from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consort.core.row import Row
from consort.errors import Failure
from consort.run.history import History

names = st.text('a9.-"\\\n\u00e9\u2028', max_size=6)
rows = st.builds(
    Row,
    round=st.integers(0, 10_000),
    metric=st.sampled_from(["accuracy", "\u2028 loss", "größe"]),
    value=st.floats(allow_nan=False) | st.integers(0, 10**15),
    client=names,
    task=names,
    split=st.sampled_from(["", "validation", "test"]),
    model=st.sampled_from(["", "global", "personal"]),
    part=names,
    n=st.integers(0, 10**9),
)


def row(number: int) -> Row:
    return Row(number, "accuracy", number / 7, f"client-{number}", "digits", "test", "global", n=5)


@pytest.fixture(params=["memory", "file"])
def history(request, tmp_path: Path) -> History:
    return History(tmp_path / "history.jsonl" if request.param == "file" else None)


@settings(max_examples=40, deadline=None)
@given(written=st.lists(rows, max_size=8))
def test_any_rows_come_back_bit_for_bit(written, tmp_path_factory):
    path = tmp_path_factory.mktemp("history") / "rows.jsonl"
    history = History(path)
    for item in written:
        history.add(item)
    history.flush()
    assert list(History(path)) == written


def test_values_that_are_no_numbers_come_back(tmp_path: Path):
    history = History(tmp_path / "h.jsonl")
    for value in (math.nan, math.inf, -math.inf):
        history.add(Row(1, "loss", value))
    history.flush()
    nan, *infinite = [item.value for item in history]
    assert math.isnan(nan)
    assert infinite == [math.inf, -math.inf]


def test_rows_wait_for_a_flush(history: History):
    history.add(row(1))
    assert list(history) == []
    history.flush()
    assert list(history) == [row(1)]
    history.flush()
    assert list(history) == [row(1)]


def test_rows_keep_their_order_over_many_flushes(history: History):
    for number in range(6):
        history.add(row(number))
        if number % 2:
            history.flush()
    assert list(history) == [row(number) for number in range(6)]
    assert list(history) == list(history)


def test_the_length_of_a_file_is_its_size_in_bytes(tmp_path: Path):
    path = tmp_path / "h.jsonl"
    history = History(path)
    assert history.flush() == 0
    history.add(Row(1, "größe", 1.0))
    assert history.flush() == path.stat().st_size > 0
    assert history.flush() == path.stat().st_size


def test_what_does_not_apply_is_not_written(tmp_path: Path):
    history = History(tmp_path / "h.jsonl")
    history.add(Row(3, "seconds", 0.5))
    history.flush()
    line = json.loads((tmp_path / "h.jsonl").read_text())
    assert line == {"round": 3, "metric": "seconds", "value": 0.5, "n": 0}


def test_a_cut_forgets_what_came_after_a_flush(history: History):
    lengths = [history.flush()]
    for number in range(4):
        history.add(row(number))
        lengths.append(history.flush())
    assert lengths == sorted(set(lengths))
    history.add(row(99))
    history.cut(lengths[2])
    assert history.flush() == lengths[2]
    assert list(history) == [row(0), row(1)]
    history.add(row(7))
    history.flush()
    assert list(history) == [row(0), row(1), row(7)]
    history.cut(0)
    assert list(history) == []


def test_a_history_without_a_file_yet_is_empty(tmp_path: Path):
    history = History(tmp_path / "h.jsonl")
    history.cut(0)
    assert list(history) == []
    assert not (tmp_path / "h.jsonl").exists()


def test_a_crash_at_any_byte_loses_only_the_line_being_written(tmp_path: Path):
    path = tmp_path / "h.jsonl"
    history = History(path)
    ends = []
    for number in range(2):
        history.add(row(number))
        ends.append(history.flush())
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        # A line is complete when its closing brace is there, even without the line break.
        complete = sum(end - 1 <= length for end in ends)
        assert list(History(path)) == [row(number) for number in range(complete)]


def test_after_a_crash_the_cut_makes_the_file_sound_again(tmp_path: Path):
    path = tmp_path / "h.jsonl"
    history = History(path)
    history.add(row(1))
    length = history.flush()
    history.add(row(2))
    history.flush()
    path.write_bytes(path.read_bytes()[:-5])
    resumed = History(path)
    resumed.cut(length)
    resumed.add(row(3))
    resumed.flush()
    assert list(History(path)) == [row(1), row(3)]


@pytest.mark.parametrize("broken", ["{", "[1, 2]", "3", '{"round": 1}', '{"round": 1, "odd": 2}'])
def test_damage_in_the_middle_is_an_error_with_file_and_line(tmp_path: Path, broken: str):
    path = tmp_path / "h.jsonl"
    history = History(path)
    for number in range(3):
        history.add(row(number))
    history.flush()
    lines = path.read_text().splitlines()
    lines[1] = broken
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(Failure, match=r"h\.jsonl, line 2: not a row of results"):
        list(History(path))


def written(path: Path, rounds: int = 3) -> list[tuple[int, str]]:
    history, marks = History(path), []
    for number in range(rounds):
        history.add(row(number))
        marks.append((history.flush(), history.digest))
    return marks


def test_every_flipped_bit_of_finished_rounds_is_noticed(tmp_path: Path):
    path = tmp_path / "h.jsonl"
    length, digest = written(path)[-1]
    whole = path.read_bytes()
    for position in range(length):
        damaged = bytearray(whole)
        damaged[position] ^= 1 << (position % 8)
        path.write_bytes(damaged)
        for read in (History(path).check, History(path).cut):
            with pytest.raises(
                Failure, match=r"h\.jsonl( is damaged: results of|, line \d: not a)"
            ):
                read(length, digest)
        assert path.read_bytes() == damaged


def test_a_missing_end_is_noticed_and_one_too_much_is_not_shown(tmp_path: Path):
    path = tmp_path / "h.jsonl"
    marks = written(path)
    history = History(path)
    history.check(*marks[1])
    assert list(history) == [row(0), row(1)]
    path.write_bytes(path.read_bytes()[: marks[1][0]] + b'{"round": 9, "metr')
    history.check(*marks[1])
    assert list(history) == [row(0), row(1)]
    with pytest.raises(Failure, match=r"h\.jsonl was cut short: results of finished rounds"):
        History(path).check(*marks[2])


def test_the_digest_goes_on_after_a_cut(tmp_path: Path):
    marks = written(tmp_path / "h.jsonl")
    history = History(tmp_path / "h.jsonl")
    history.cut(*marks[0])
    for number in (1, 2):
        history.add(row(number))
        history.flush()
        assert history.digest == marks[number][1]
    assert list(history) == [row(0), row(1), row(2)]


def test_a_history_without_a_digest_is_cut_by_its_length(tmp_path: Path):
    marks = written(tmp_path / "h.jsonl")
    history = History(tmp_path / "h.jsonl")
    history.cut(marks[1][0])
    assert list(history) == [row(0), row(1)]
    history.flush()
    assert history.digest == marks[1][1]


@pytest.mark.parametrize("change", [
    {"n": '1}\n{"round":1,"metric":"accuracy","value":1.0,"client":"c0","n":9'},
    {"n": 1.0}, {"n": True}, {"n": None}, {"round": "1"}, {"value": "0.9"}, {"value": [0.9]},
    {"value": None}, {"client": 3}, {"metric": 3}, {"part": 1},
])  # fmt: skip
def test_a_row_of_other_types_is_neither_written_nor_read(tmp_path, change):
    row = Row(1, "accuracy", 0.5, "c0", "sign", "test", "global", "", 9)
    history = History(tmp_path / "history.jsonl")
    history.add(row._replace(**change))
    with pytest.raises(Failure, match="is not a number of a round"):
        history.flush()
    assert not (tmp_path / "history.jsonl").exists()
    line = json.dumps(row._replace(**change)._asdict())
    (tmp_path / "history.jsonl").write_text(f"{line}\n{json.dumps(row._asdict())}\n")
    with pytest.raises(Failure, match="line 1: not a row of results"):
        list(History(tmp_path / "history.jsonl"))
