"""What clients remember: read as it was, made durable, and never mistaken for an older state."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.faults.system_calls import Listener, listening
from tests.kept import kept_states, place_of

from consort.core.files import write_checked
from consort.core.params import Params
from consort.core.sealed import EMPTY
from consort.core.wire import encode
from consort.engines import segments
from consort.engines.segments import Place, Segments
from consort.engines.states import StateStore
from consort.errors import Failure


@pytest.fixture(params=["memory", "disk"])
def store(request, tmp_path: Path) -> StateStore:
    return StateStore(tmp_path / "clients" if request.param == "disk" else None)


def put(store: StateStore, round_: int, step: int, value: Any = None, client: str = "c0") -> None:
    store.save(client, (round_, step), {"at": value if value is not None else [round_, step]})


def seen(store: StateStore, round_: int, step: int, client: str = "c0") -> Any:
    return store.load(client, (round_, step)).get("at")


def test_at_first_a_client_remembers_nothing(store: StateStore):
    state = store.load("c0", (1, 0))
    assert state == {}


def test_states_hold_all_that_can_be_sent(store: StateStore):
    head = Params({"heads.t.w": torch.arange(3.0)})
    store.save("c0", (1, 0), {"head": head, "steps": 3, "drift": {"a": (1, None)}})
    state = store.load("c0", (1, 1))
    assert state["head"].equals(head)
    assert (state["steps"], state["drift"]) == (3, {"a": (1, None)})


def test_a_saved_state_is_a_copy(store: StateStore):
    weights = torch.zeros(2)
    store.save("c0", (1, 0), {"w": weights})
    weights.fill_(1)
    first = store.load("c0", (2, 0))["w"]
    assert first.tolist() == [0, 0]
    first.fill_(2)
    assert store.load("c0", (2, 0))["w"].tolist() == [0, 0]


def test_a_call_sees_what_was_written_strictly_before_it(store: StateStore):
    put(store, 1, 0)
    put(store, 1, 2)
    put(store, 2, 1)
    assert seen(store, 1, 0) is None
    assert seen(store, 1, 1) == seen(store, 1, 2) == [1, 0]
    assert seen(store, 1, 3) == seen(store, 2, 0) == seen(store, 2, 1) == [1, 2]
    assert seen(store, 2, 2) == seen(store, 9, 0) == [2, 1]


def test_rounds_are_compared_as_numbers(store: StateStore):
    put(store, 9, 11)
    put(store, 10, 2)
    assert seen(store, 10, 0) == [9, 11]
    assert seen(store, 10, 3) == seen(store, 11, 0) == [10, 2]


def test_a_round_run_again_after_a_crash_finds_the_same_state(store: StateStore):
    put(store, 1, 0, "one")
    put(store, 2, 0, "two")
    put(store, 3, 0, "three, first step")
    put(store, 3, 1, "three, second step")
    assert seen(store, 3, 0) == "two"
    put(store, 3, 0, "three again, first step")
    assert seen(store, 3, 0) == "two"
    assert seen(store, 3, 1) == "three again, first step"
    # What the crashed attempt wrote later is gone, so it cannot be mistaken for the new one.
    assert seen(store, 4, 0) == "three again, first step"


def test_going_back_two_rounds_is_possible(store: StateStore):
    for round_ in range(1, 7):
        put(store, round_, 0)
    assert seen(store, 6, 0) == [5, 0]
    assert seen(store, 5, 0) == [4, 0]
    assert seen(store, 4, 0) is None


def test_the_last_two_earlier_rounds_are_those_a_client_took_part_in(store: StateStore):
    for round_ in (1, 4, 9, 20):
        put(store, round_, 0)
    assert seen(store, 20, 0) == [9, 0]
    assert seen(store, 9, 0) == [4, 0]
    assert seen(store, 4, 0) is None


def test_going_back_makes_later_rounds_void(store: StateStore):
    for round_ in range(1, 6):
        put(store, round_, 0)
    put(store, 4, 0, "again")
    assert seen(store, 4, 0) == [3, 0]
    assert seen(store, 9, 0) == "again"


def test_clients_do_not_see_each_other(store: StateStore):
    put(store, 1, 0, "mine", "c1")
    put(store, 1, 0, "yours", "c10")
    assert seen(store, 2, 0, "c1") == "mine"
    assert seen(store, 2, 0, "c10") == "yours"
    assert seen(store, 2, 0, "c") is None


@settings(max_examples=25, deadline=None)
@given(stamps=st.lists(st.tuples(st.integers(1, 5), st.integers(0, 2)), max_size=12))
def test_memory_and_disk_agree_on_any_course_of_writing(stamps, tmp_path_factory):
    stores = [StateStore(), StateStore(tmp_path_factory.mktemp("states"))]
    for number, stamp in enumerate(stamps):
        for store in stores:
            put(store, *stamp, number)
        newest = number  # whatever was there after this stamp is now void
        times = [(round_, step) for round_ in range(1, 7) for step in range(4)]
        memory, disk = ([seen(store, *time) for time in times] for store in stores)
        assert memory == disk
        assert seen(stores[0], 9, 0) == newest


Stamps = list[tuple[int, int]]


def course(store: StateStore, stamps: Stamps) -> list[Any]:
    """A client that notes at each of its calls when it was called; returns what it found."""
    found = []
    for stamp in stamps:
        state = store.load("c0", stamp)
        found.append(list(state.get("calls", [])))
        state["calls"] = [*state.get("calls", []), list(stamp)]
        store.save("c0", stamp, state)
    return found


@given(
    stamps=st.sets(st.tuples(st.integers(1, 6), st.integers(0, 2)), min_size=1).map(sorted),
    killed=st.integers(0, 18),
    back=st.integers(0, 1),
)
def test_a_run_killed_anywhere_and_resumed_finds_what_a_straight_run_finds(
    stamps: Stamps, killed: int, back: int, tmp_path_factory
):
    folder = tmp_path_factory.mktemp("killed")
    straight = course(StateStore(), stamps)
    killed = min(killed, len(stamps) - 1)
    course(StateStore(folder), stamps[: killed + 1])
    # The round that was cut off is run again, or the one before if its checkpoint was damaged.
    again = [stamp for stamp in stamps if stamp[0] >= stamps[killed][0] - back]
    assert course(StateStore(folder), again) == straight[len(stamps) - len(again) :]


def test_states_on_disk_outlive_the_process_and_stay_few(tmp_path: Path):
    for round_ in range(1, 9):
        store = StateStore(tmp_path)
        put(store, round_, 0)
        put(store, round_, 1)
        store.commit()
    assert list(kept_states(tmp_path)["c0"]) == [f"{r}-{s}" for r in (6, 7, 8) for s in (0, 1)]
    assert seen(StateStore(tmp_path), 9, 0) == [8, 1]
    assert len(list(tmp_path.glob("*.states"))) == 3


def test_the_states_of_a_round_share_a_file_until_it_is_large(tmp_path: Path, monkeypatch):
    store = StateStore(tmp_path)
    for number in range(30):
        put(store, 1, 0, client=f"c{number}")
    assert len(list(tmp_path.glob("*.states"))) == 1
    monkeypatch.setattr(segments, "_FULL", 1)
    for number in range(3):
        put(store, 2, 0, number, client=f"c{number}")
    assert len(list(tmp_path.glob("*.states"))) == 4
    assert [seen(store, 3, 0, f"c{number}") for number in range(3)] == [0, 1, 2]


def test_a_file_is_deleted_when_none_of_its_states_is_needed(tmp_path: Path):
    """Clients take part now and then; what one of them still needs keeps its file."""
    store = StateStore(tmp_path)
    put(store, 1, 0, "rare", client="rare")
    for round_ in range(1, 12):
        put(store, round_, 0)
        store.commit()
    rounds = sorted(int(path.name[:6]) for path in tmp_path.glob("*.states"))
    assert rounds == [1, 9, 10, 11]
    assert seen(store, 12, 0, "rare") == "rare"


def test_names_of_clients_are_no_paths(tmp_path: Path):
    store = StateStore(tmp_path / "states")
    put(store, 1, 0, client="../../evil")
    store.commit()
    assert [path.name for path in tmp_path.iterdir()] == ["states"]
    assert seen(StateStore(tmp_path / "states"), 2, 0, "../../evil") == [1, 0]


# Durable


class Synced(Listener):
    """Which files were synced, and which were only written."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []

    def after(self, call, path, arguments, result) -> None:
        if call in ("write", "fsync"):
            self.calls.append((call, Path(path).suffix))


def test_a_commit_waits_once_for_all_clients(tmp_path: Path):
    store, listener = StateStore(tmp_path / "clients"), Synced()
    store.rewind(None, 0)
    with listening(tmp_path, listener):
        for number in range(100):
            put(store, 1, 0, client=f"c{number}")
        before = [call for call, _ in listener.calls]
        store.commit()
    assert before.count("fsync") == 1  # of the folder above the new one
    assert listener.calls[-3:] == [("fsync", ".states"), ("fsync", ".jsonl"), ("fsync", "")]
    assert len(listener.calls) == 1 + 200 + 3
    with listening(tmp_path, listener):
        store.commit()
    assert len(listener.calls) == 1 + 200 + 3


def test_a_store_in_memory_has_nothing_to_wait_for():
    store = StateStore()
    put(store, 1, 0)
    assert store.commit() == EMPTY
    store.rewind(None, 0)
    assert seen(store, 2, 0) is None


# What a checkpoint counts on


def committed(folder: Path, rounds: int = 3) -> list[tuple[int, str]]:
    """A run of so many rounds with two clients, one of which misses the odd ones."""
    store = StateStore(folder)
    store.rewind(None, 0)
    marks = []
    for round_ in range(1, rounds + 1):
        put(store, round_, 0)
        if round_ % 2 == 0:
            put(store, round_, 0, client="c1")
        marks.append(store.commit())
    return marks


@pytest.mark.parametrize("back", [0, 1])
def test_a_store_goes_back_to_a_checkpoint(tmp_path: Path, back: int):
    """The last one, or the one before it, whose files are still there."""
    marks = committed(tmp_path, 6)
    store = StateStore(tmp_path)
    put(store, 7, 0, "of a round that was not finished")
    put(store, 7, 1, "and of its second step", client="c1")
    resumed = StateStore(tmp_path)
    resumed.rewind(marks[-1 - back], 6 - back)
    assert seen(resumed, 8, 0) == [6 - back, 0]
    assert seen(resumed, 8, 0, "c1") == [6 - 2 * back, 0]
    assert seen(resumed, 6 - back, 0) == [5 - back, 0]  # for who repeats the last round
    assert not list(tmp_path.glob("000007*"))


def test_reading_as_of_a_checkpoint_changes_nothing(tmp_path: Path):
    marks = committed(tmp_path, 4)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert seen(StateStore(tmp_path, marks[2]), 9, 0) == [3, 0]
    assert seen(StateStore(tmp_path, marks[3]), 9, 0) == [4, 0]
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_state_of_an_abandoned_attempt_is_never_used(tmp_path: Path):
    """A client that had answered before the crash is absent when the round is run again."""
    (mark,) = committed(tmp_path, 1)
    crashed = StateStore(tmp_path)
    put(crashed, 2, 0, "abandoned")
    crashed.commit()
    again = StateStore(tmp_path)
    again.rewind(mark, 1)
    assert seen(again, 2, 1) == seen(again, 3, 0) == [1, 0]


def test_without_a_checkpoint_all_states_are_void(tmp_path: Path):
    committed(tmp_path)
    store = StateStore(tmp_path)
    store.rewind(None, 0)
    assert seen(store, 9, 0) is None
    assert [path.name for path in tmp_path.iterdir()] == ["states.jsonl"]
    assert (tmp_path / "states.jsonl").read_bytes() == b""


def test_a_missing_state_is_noticed_when_the_run_is_resumed(tmp_path: Path):
    marks = committed(tmp_path)
    path, _ = place_of(tmp_path, "c1", 3)
    path.unlink()
    with pytest.raises(Failure) as caught:
        StateStore(tmp_path).rewind(marks[-1], 3)
    assert str(caught.value) == (
        f"{path} is missing or was cut short: the state of c1 is gone; start the run again in a "
        "new folder"
    )


def test_a_state_that_was_cut_short_is_noticed_when_the_run_is_resumed(tmp_path: Path):
    marks = committed(tmp_path)
    path, place = place_of(tmp_path, "c0", 3)
    os.truncate(path, place.offset + place.length - 1)
    with pytest.raises(Failure, match=r"was cut short: the state of c0 is gone"):
        StateStore(tmp_path).rewind(marks[-1], 3)


def test_an_older_state_in_the_place_of_a_newer_one_is_noticed(tmp_path: Path):
    """As after a backup was copied back: the old state is sound in itself."""
    marks = committed(tmp_path)
    new, place = place_of(tmp_path, "c0", 3)
    old, other = place_of(tmp_path, "c0", 1)
    assert place.length == other.length
    shutil.copy(old, new)
    store = StateStore(tmp_path)
    store.rewind(marks[-1], 3)
    with pytest.raises(Failure, match=f"{new.name} is damaged: the state of c0 cannot be read"):
        store.load("c0", (4, 0))


def test_every_flipped_bit_of_a_state_and_of_its_journal_is_noticed(tmp_path: Path):
    mark = committed(tmp_path, 1)[-1]
    for path in sorted(tmp_path.iterdir()):
        whole = path.read_bytes()
        for position in range(len(whole)):
            damaged = bytearray(whole)
            damaged[position] ^= 1 << (position % 8)
            path.write_bytes(damaged)
            with pytest.raises(Failure, match=f"{path.name} is damaged"):
                StateStore(tmp_path, mark).load("c0", (2, 0))
        path.write_bytes(whole)
    assert seen(StateStore(tmp_path, mark), 2, 0) == [1, 0]


def test_a_journal_that_is_missing_or_older_is_noticed(tmp_path: Path):
    marks = committed(tmp_path)
    journal = tmp_path / "states.jsonl"
    whole = journal.read_bytes()
    for length in (0, marks[0][0], marks[1][0], len(whole) - 1):
        journal.write_bytes(whole[:length])
        with pytest.raises(Failure, match=r"states\.jsonl is damaged or an older one"):
            StateStore(tmp_path).rewind(marks[-1], 3)
    journal.unlink()
    with pytest.raises(Failure, match=r"states\.jsonl is missing"):
        StateStore(tmp_path).rewind(marks[-1], 3)


# A client on a machine of its own


def journey(folder: Path, rounds: int) -> StateStore:
    """A client that has answered in so many rounds; every second time its state changed."""
    store = StateStore(folder)
    for round_ in range(1, rounds + 1):
        if round_ % 2:
            put(store, round_, 0)
        store.answered("c0", (round_, 0))
    return store


def test_an_answer_is_remembered_whether_the_state_changed_or_not(tmp_path: Path):
    for folder in (tmp_path / "disk", None):
        journey(folder, 4).go_back("c0", (4, 0))
    store = StateStore(tmp_path / "disk")
    store.go_back("c0", (4, 0))
    assert seen(store, 5, 0) == [3, 0]
    store.go_back("c0", (2, 0))
    assert seen(store, 5, 0) == [1, 0]
    assert seen(StateStore(tmp_path / "disk"), 5, 0) == [1, 0]
    store.go_back("c0", None)
    assert seen(store, 5, 0) is seen(StateStore(tmp_path / "disk"), 5, 0) is None


def test_a_client_without_any_state_knows_its_answers(tmp_path: Path):
    StateStore(tmp_path).answered("c0", (1, 0))
    store = StateStore(tmp_path)
    store.go_back("c0", (1, 0))
    assert store.load("c0", (2, 0)) == {}
    with pytest.raises(Failure, match="the state of c0 after round 2 is missing"):
        store.go_back("c0", (2, 0))


def test_a_state_that_was_rolled_back_is_refused(tmp_path: Path):
    """The whole folder of the client is one of last week, and sound in itself."""
    journey(tmp_path / "home", 2)
    shutil.copytree(tmp_path / "home", tmp_path / "backup")
    journey(tmp_path / "home", 3)
    shutil.rmtree(tmp_path / "home")
    (tmp_path / "backup").rename(tmp_path / "home")
    with pytest.raises(Failure) as caught:
        StateStore(tmp_path / "home").go_back("c0", (3, 0))
    assert str(caught.value) == (
        "the state of c0 after round 3 is missing, or an older one was put in its place: start the "
        "run again in a new --out"
    )


def test_answers_up_to_a_damaged_line_are_known_and_no_others(tmp_path: Path):
    journey(tmp_path, 3)
    journal = tmp_path / "states.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(lines[0] + lines[1] + lines[2][:-9])
    store = StateStore(tmp_path)
    with pytest.raises(Failure, match="after round 3 is missing"):
        store.go_back("c0", (3, 0))
    store.go_back("c0", (2, 0))
    put(store, 3, 0, "again")
    store.answered("c0", (3, 0))
    assert seen(StateStore(tmp_path), 4, 0) == "again"


# Folders of version 0.1, with a file for each state


def old_folder(folder: Path) -> None:
    for client, stamp in (("c0", (1, 0)), ("c0", (2, 0)), ("c1", (1, 0)), ("c0", (3, 0))):
        path = folder / client / f"{stamp[0]}-{stamp[1]}.state"
        write_checked(path, encode({"at": list(stamp)}))


def test_states_of_version_0_1_are_read_and_go_on(tmp_path: Path):
    old_folder(tmp_path)
    assert seen(StateStore(tmp_path), 9, 0) == [3, 0]
    store = StateStore(tmp_path)
    store.rewind(None, 2)
    assert seen(store, 3, 1) == [2, 0]
    assert seen(store, 3, 1, "c1") == [1, 0]
    assert not (tmp_path / "c0" / "3-0.state").exists()
    put(store, 3, 0, "new")
    mark = store.commit()
    assert seen(StateStore(tmp_path, mark), 4, 0) == "new"
    assert seen(StateStore(tmp_path, mark), 4, 0, "c1") == [1, 0]
    again = StateStore(tmp_path)
    again.rewind(None, 2)  # the new checkpoint was deleted: the old one knows no journal
    assert seen(again, 9, 0) == [2, 0]


def test_a_damaged_state_of_version_0_1_is_named(tmp_path: Path):
    old_folder(tmp_path)
    (tmp_path / "c1" / "1-0.state").write_bytes(b"damaged")
    with pytest.raises(Failure, match=r"c1/1-0\.state is damaged"):
        StateStore(tmp_path).load("c1", (2, 0))


# Workers


def test_what_another_process_wrote_counts_when_it_is_told(tmp_path: Path):
    store = StateStore(tmp_path)
    place = Segments(tmp_path).append(1, encode({"at": "there"}))
    assert seen(store, 2, 0) is None
    store.write("c0", (1, 0), place)
    assert store.find("c0", (2, 0)) == place
    assert isinstance(place, Place)
    mark = store.commit()
    assert seen(StateStore(tmp_path, mark), 2, 0) == "there"
