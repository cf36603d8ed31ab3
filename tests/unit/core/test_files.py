from __future__ import annotations

import errno
import math
import os
import stat
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from tests.faults.system_calls import Listener, listening

from consort.core.files import (
    append_file,
    cut_file,
    held,
    load,
    make_folder,
    read_checked,
    running_digest,
    save,
    write_file,
)
from consort.core.params import Params
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

    def crash(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", crash)
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
        with pytest.raises(Failure, match=r"a\.ckpt cannot be written \(no space left on device\)"):
            save(path, {"version": 2})
        assert load(path) == {"version": 1}
        save(path, {"version": 3}, durable=False)
    assert load(path) == {"version": 3}
    assert [file.name for file in tmp_path.iterdir()] == ["a.ckpt"]


class Order(Listener):
    """Notes what is done to which file."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []

    def after(self, call, path, arguments, result) -> None:
        self.calls.append((call, Path(path).name))


def test_contents_are_synced_before_names_and_names_at_the_end(tmp_path: Path):
    order = Order()
    with listening(tmp_path, order):
        write_file(tmp_path / "new" / "a", b"content")
    assert order.calls == [
        ("mkdir", "new"), ("fsync", tmp_path.name),
        ("open", "a.tmp"), ("write", "a.tmp"), ("fsync", "a.tmp"),
        ("replace", "a.tmp"), ("fsync", "new"),
    ]  # fmt: skip


def test_what_is_added_is_synced_and_so_is_the_name_of_a_new_file(tmp_path: Path):
    order = Order()
    with listening(tmp_path, order):
        assert append_file(tmp_path / "a", b"one") == 0
        assert append_file(tmp_path / "a", b"two") == 3
    more = [("open", "a"), ("write", "a"), ("fsync", "a")]
    assert order.calls == [*more, ("fsync", tmp_path.name), *more]
    assert (tmp_path / "a").read_bytes() == b"onetwo"


class Full(Listener):
    """A disk with room for half of what is written."""

    def before(self, call, path, arguments) -> None:
        if call == "write":
            if len(arguments[1]) > 1:
                os.pwrite(arguments[0], bytes(arguments[1][: len(arguments[1]) // 2]), 10**3)
            raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_is_one_sentence_and_the_old_content_stays(tmp_path: Path):
    path = tmp_path / "a"
    write_file(path, b"old")
    for write in (write_file, append_file):
        with (
            listening(tmp_path, Full()),
            pytest.raises(Failure) as caught,
        ):
            write(path, b"new and longer")
        assert str(caught.value) == (
            f"{path} cannot be written ([Errno 28] No space left on device): repair that and "
            "repeat the command; what was finished is not lost"
        )
        assert path.read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == ["a"]


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def open_umask():
    before = os.umask(0)
    yield
    os.umask(before)


def test_files_and_folders_belong_to_their_owner_alone(tmp_path: Path, open_umask):
    write_file(tmp_path / "new" / "folder" / "a", b"")
    append_file(tmp_path / "new" / "b", b"")
    with held(tmp_path / "new"):
        pass
    for path in (tmp_path / "new").rglob("*"):
        assert mode(path) == (0o700 if path.is_dir() else 0o600)
    assert mode(tmp_path / "new") == 0o700


def test_so_they_do_from_the_moment_they_exist(tmp_path: Path, open_umask):
    class Modes(Listener):
        def after(self, call, path, arguments, result) -> None:
            if call == "open":
                assert mode(Path(path)) == 0o600

    (tmp_path / "a.tmp").write_bytes(b"left by somebody, for everybody to read")
    with listening(tmp_path, Modes()):
        write_file(tmp_path / "a", b"secret")
    assert mode(tmp_path / "a") == 0o600


def test_a_draft_that_is_a_link_is_not_followed(tmp_path: Path):
    (tmp_path / "a.tmp").symlink_to(tmp_path / "elsewhere")
    write_file(tmp_path / "a", b"secret")
    assert not (tmp_path / "elsewhere").exists()
    assert not (tmp_path / "a").is_symlink()


def test_a_folder_that_exists_is_left_as_it_is(tmp_path: Path):
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o755)
    make_folder(tmp_path / "shared" / "new")
    assert mode(tmp_path / "shared") == 0o755
    (tmp_path / "file").touch()
    with pytest.raises(Failure, match="file is not a folder: choose another one"):
        make_folder(tmp_path / "file" / "new")


def test_a_folder_that_cannot_be_synced_does_not_matter(tmp_path: Path):
    class NoSuchThing(Listener):
        def before(self, call, path, arguments) -> None:
            if call == "fsync" and Path(path).is_dir():
                raise OSError(errno.EINVAL, "Invalid argument")

    with listening(tmp_path, NoSuchThing()):
        write_file(tmp_path / "a", b"content")
    assert (tmp_path / "a").read_bytes() == b"content"


def test_a_file_that_is_missing_is_named(tmp_path: Path):
    with pytest.raises(Failure, match="gone is missing: start the run again in a new folder"):
        read_checked(tmp_path / "gone")


def test_the_digest_of_a_beginning_goes_on_with_what_is_added(tmp_path: Path):
    path = tmp_path / "a"
    assert running_digest(path, 0).digest() == running_digest(path, 0).digest()
    append_file(path, b"one")
    digest = running_digest(path, 3)
    append_file(path, b"two")
    digest.update(b"two")
    assert digest.digest() == running_digest(path, 6).digest()
    cut_file(path, 5)
    with pytest.raises(Failure, match="a was cut short"):
        running_digest(path, 6)
