from __future__ import annotations

import math
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from consort.core.files import held, load, save, write_file
from consort.core.params import Params
from consort.engines.states import StateStore
from consort.errors import Failure, UsageError


@dataclass(frozen=True)
class Server:
    model: Params
    pulls: dict[str, list[float]] = field(default_factory=dict)


def server() -> Server:
    return Server(Params({"encoder.w": torch.arange(4.0)}), {"c0": [0.1, math.inf]})


# Locks


HOLDER = """
import sys
from pathlib import Path
from consort.core.files import held

with held(Path(sys.argv[1]), *sys.argv[2:]):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_folder_is_held_by_one_process_until_it_ends(tmp_path: Path):
    folder = tmp_path / "new"
    command = [sys.executable, "-c", HOLDER, str(folder), "server.lock"]
    refusal = f"{folder} is in use by another process: stop it first"
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout.readline() == b"held\n"
        with (
            pytest.raises(UsageError, match=refusal),
            held(folder, "server.lock", "stop it first"),
        ):
            pass
        with held(folder):  # another lock file is another matter
            pass
        child.kill()
    with held(folder, "server.lock"):
        pass


# Files


@pytest.mark.parametrize("durable", [False, True])
def test_a_value_comes_back_as_it_was(tmp_path: Path, durable: bool):
    path = tmp_path / "new" / "folders" / "round-1.ckpt"
    save(path, {"round": 1, "server": server()}, durable)
    content = load(path, {"Server": Server})
    assert content["round"] == 1
    assert content["server"].model.equals(server().model)
    assert content["server"].pulls == server().pulls
    assert [file.name for file in path.parent.iterdir()] == ["round-1.ckpt"]


def test_saving_again_replaces_the_file(tmp_path: Path):
    path = tmp_path / "a.ckpt"
    save(path, {"long": list(range(1000))})
    save(path, {"short": 1})
    assert load(path) == {"short": 1}


def test_the_same_value_has_the_same_bytes(tmp_path: Path):
    save(tmp_path / "a", {"server": server()})
    save(tmp_path / "b", {"server": server()})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_every_flipped_byte_is_noticed(tmp_path: Path):
    path = tmp_path / "round-2.ckpt"
    save(path, {"w": torch.ones(2)})
    whole = path.read_bytes()
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 1 << (position % 8)
        path.write_bytes(damaged)
        with pytest.raises(Failure, match=r"round-2\.ckpt is damaged: delete it"):
            load(path)


def test_every_truncation_and_any_addition_is_noticed(tmp_path: Path):
    path = tmp_path / "round-2.ckpt"
    save(path, {"w": torch.ones(2)})
    whole = path.read_bytes()
    for content in [*(whole[:length] for length in range(len(whole))), whole + b"\0"]:
        path.write_bytes(content)
        with pytest.raises(Failure, match="is damaged"):
            load(path)


def test_a_record_of_another_algorithm_is_an_error_that_names_the_file(tmp_path: Path):
    path = tmp_path / "round-3.ckpt"
    save(path, {"server": server()})
    with pytest.raises(Failure, match=r"round-3\.ckpt cannot be read .*another version"):
        load(path, {"Other": Server})


def test_a_crash_before_the_file_is_replaced_leaves_the_old_one(tmp_path: Path, monkeypatch):
    path = tmp_path / "a.ckpt"
    save(path, {"version": 1})

    def crash(self: Path, target: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", crash)
        with pytest.raises(KeyboardInterrupt):
            save(path, {"version": 2})
    assert load(path) == {"version": 1}
    save(path, {"version": 3})
    assert load(path) == {"version": 3}
    assert [file.name for file in tmp_path.iterdir()] == ["a.ckpt"]


def test_a_crash_while_writing_leaves_the_old_file(tmp_path: Path):
    path = tmp_path / "a.ckpt"
    save(path, {"version": 1})
    (tmp_path / "a.ckpt.tmp").write_bytes(b"half of version 2")
    assert load(path) == {"version": 1}
    write_file(path, b"all of version 2")
    assert path.read_bytes() == b"all of version 2"


def test_a_durable_file_is_on_the_disk_before_it_replaces_the_old_one(tmp_path: Path, monkeypatch):
    path = tmp_path / "a.ckpt"
    save(path, {"version": 1})

    def crash(descriptor: int) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", crash)
        with pytest.raises(OSError, match="no space"):
            save(path, {"version": 2}, durable=True)
        assert load(path) == {"version": 1}
        save(path, {"version": 3})
    assert load(path) == {"version": 3}


# What clients remember


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


def test_files_on_disk_outlive_the_process_and_stay_few(tmp_path: Path):
    for round_ in range(1, 9):
        put(StateStore(tmp_path), round_, 0)
        put(StateStore(tmp_path), round_, 1)
    names = sorted(path.name for path in (tmp_path / "c0").iterdir())
    assert names == [f"{round_}-{step}.state" for round_ in (6, 7, 8) for step in (0, 1)]
    assert seen(StateStore(tmp_path), 9, 0) == [8, 1]


def test_a_draft_left_by_a_crash_is_not_taken_for_a_state(tmp_path: Path):
    store = StateStore(tmp_path)
    put(store, 1, 0)
    (tmp_path / "c0" / "2-0.state.tmp").write_bytes(b"half")
    assert seen(store, 3, 0) == [1, 0]


def test_a_damaged_state_is_an_error_that_names_the_file(tmp_path: Path):
    store = StateStore(tmp_path)
    put(store, 1, 0)
    (tmp_path / "c0" / "1-0.state").write_bytes(b"damaged")
    with pytest.raises(Failure, match=r"c0/1-0\.state is damaged"):
        store.load("c0", (2, 0))


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
