"""The log of a client: whatever is changed in it is noticed."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("cryptography", reason="pip install 'fedconsort[flower]'")

from tests.institutions import Institutions
from tests.unit.cli.command import consort

from consort.deployment.credentials import ClientCredentials
from consort.deployment.keys import new_key
from consort.deployment.site_log import SiteLog, read_lines, verified
from consort.errors import Failure


@pytest.fixture(scope="module")
def credentials(tmp_path_factory: pytest.TempPathFactory) -> ClientCredentials:
    place = tmp_path_factory.mktemp("credentials")
    Institutions(place, ["a-0"])
    return ClientCredentials.open(place / "a-0", "a-0")


@pytest.fixture
def home(credentials: ClientCredentials, tmp_path: Path) -> Path:
    """A client that was asked and answered twice."""
    (tmp_path / "a-0.pem").write_bytes(credentials.certificate.read_bytes())
    log = SiteLog(tmp_path, credentials.private_key)
    for round_ in (1, 2):
        log.add("asked", method="train", round=round_, down={"encoder": 120})
        log.add("answered", method="train", round=round_, up={"encoder": 120}, epsilon=0.5)
    return tmp_path


def log_of(home: Path) -> Path:
    return home / "log" / "log.jsonl"


def test_what_happened_can_be_read_and_verified(home):
    events = [entry["event"] for entry in verified(home)]
    assert events == ["key", "asked", "answered", "asked", "answered"]
    assert list(read_lines(home)) == list(verified(home))
    shown = consort("site", "log", home)
    assert "asked train, round 1, down encoder 120" in shown.out
    assert "answered train, round 2, up encoder 120, epsilon 0.5" in shown.out
    verdict = consort("site", "log", home, "--verify")
    assert verdict.out == "5 lines: none was changed, and none is missing\n"


def test_only_its_owner_can_read_it(home):
    assert stat.S_IMODE(log_of(home).stat().st_mode) == 0o600
    assert stat.S_IMODE(log_of(home).parent.stat().st_mode) == 0o700


def changed(number: int, change: Callable[[dict], object]) -> Callable[[list[bytes]], list[bytes]]:
    def apply(lines: list[bytes]) -> list[bytes]:
        entry = json.loads(lines[number - 1])
        change(entry)
        lines[number - 1] = json.dumps(entry, separators=(",", ":")).encode()
        return lines

    return apply


TAMPERED: dict[str, tuple[Callable[[list[bytes]], list[bytes]], int]] = {
    "a value": (changed(3, lambda entry: entry.update(epsilon=0.1)), 3),
    "a number": (changed(3, lambda entry: entry.update(number=4)), 3),
    "a signature": (changed(2, lambda entry: entry.update(signature="00")), 2),
    "no signature": (changed(2, lambda entry: entry.pop("signature")), 2),
    "a key": (changed(1, lambda entry: entry.update(public="?")), 1),
    "spaces": (lambda lines: [lines[0], lines[1].replace(b",", b", "), *lines[2:]], 2),
    "a line less": (lambda lines: [*lines[:2], *lines[3:]], 3),
    "the first line": (lambda lines: lines[1:], 1),
    "the last line": (lambda lines: lines[:-1], 5),
    "two last lines": (lambda lines: lines[:-2], 4),
    "all lines": (lambda lines: [], 1),
    "two in turn": (lambda lines: [*lines[:2], lines[3], lines[2], lines[4]], 3),
    "a line twice": (lambda lines: [*lines[:3], lines[2], *lines[3:]], 4),
    "no JSON": (lambda lines: [*lines[:3], b"nonsense", *lines[4:]], 4),
    "a list": (lambda lines: [*lines[:3], b"[]", *lines[4:]], 4),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_the_first_line_that_was_changed_is_named(what, home):
    change, number = TAMPERED[what]
    lines = change(log_of(home).read_bytes().splitlines())
    log_of(home).write_bytes(b"".join(line + b"\n" for line in lines))
    with pytest.raises(Failure, match=rf"log.jsonl, line {number}: it is missing, damaged or was"):
        list(verified(home))
    outcome = consort("site", "log", home, "--verify")
    assert outcome.code == 1
    assert f"line {number}: " in outcome.err


def test_every_bit_counts(home):
    data = log_of(home).read_bytes()
    for place in range(0, len(data), 97):
        log_of(home).write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with pytest.raises(Failure):
            list(verified(home))


def test_a_log_of_somebody_else_is_noticed(home):
    for path in (log_of(home), home / "log" / "log.head"):
        path.unlink()
    SiteLog(home, new_key()).add("answered")
    with pytest.raises(Failure, match="ends with another key than the client's"):
        list(verified(home))


def test_a_new_key_continues_the_log(home, credentials):
    SiteLog(home, new_key()).add("answered")
    SiteLog(home, credentials.private_key).add("answered")
    assert [entry["event"] for entry in verified(home)][5:] == ["key", "answered"] * 2


@pytest.mark.parametrize("left", [1, 40, -1])
def test_a_line_that_a_crash_cut_off_is_removed(left, home, credentials):
    head = (home / "log" / "log.head").read_bytes()
    whole = log_of(home).read_bytes()
    SiteLog(home, credentials.private_key).add("answered")
    last = log_of(home).read_bytes()[len(whole) :]
    log_of(home).write_bytes(whole + last[:left])
    (home / "log" / "log.head").write_bytes(head)
    SiteLog(home, credentials.private_key)
    assert log_of(home).read_bytes() == whole
    assert len(list(verified(home))) == 5


def test_a_line_that_a_crash_left_without_its_head_is_kept(home, credentials):
    head = (home / "log" / "log.head").read_bytes()
    SiteLog(home, credentials.private_key).add("answered")
    (home / "log" / "log.head").write_bytes(head)
    SiteLog(home, credentials.private_key).add("answered")
    assert len(list(verified(home))) == 7


@pytest.mark.parametrize("what", ["the last line", "all lines", "a line twice", "the end"])
def test_nothing_else_is_repaired(what, home, credentials):
    change = {"the end": changed(5, lambda entry: entry.update(round=9))}
    lines = (change.get(what) or TAMPERED[what][0])(log_of(home).read_bytes().splitlines())
    log_of(home).write_bytes(b"".join(line + b"\n" for line in lines))
    before = log_of(home).read_bytes()
    with pytest.raises(Failure, match="missing, damaged or was changed"):
        SiteLog(home, credentials.private_key)
    assert log_of(home).read_bytes() == before


def test_a_line_is_on_disk_before_anything_goes_on(home, credentials, monkeypatch):
    synced: list[str] = []
    real = os.fsync

    def fsync(file: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{file}").readlink()))
        real(file)

    monkeypatch.setattr(os, "fsync", fsync)
    SiteLog(home, credentials.private_key).add("answered")
    assert synced[0] == str(log_of(home))
