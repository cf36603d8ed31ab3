"""The commands that make and change credentials."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedconsort[flower]'")

from consort.cli import main
from consort.deployment.credentials import ClientCredentials, ServerCredentials
from consort.deployment.keys import is_encrypted


@pytest.fixture(autouse=True)
def umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


def consort(monkeypatch: pytest.MonkeyPatch, *words: object) -> None:
    monkeypatch.setattr(sys, "argv", ["consort", *map(str, words)])
    try:
        main()
    except SystemExit as end:
        if end.code:
            raise


def test_rotating_keys_that_have_a_passphrase(tmp_path: Path, monkeypatch, capsys):
    server, client = tmp_path / "server", tmp_path / "client"
    word = tmp_path / "word"
    word.write_text("open sesame\n")
    word.chmod(0o600)
    option = ("--passphrase-file", word)
    consort(monkeypatch, "site", "init", server, "--host", "localhost", *option)
    monkeypatch.setenv("CONSORT_PASSPHRASE", "abracadabra")
    consort(monkeypatch, "site", "join", client, "--name", "bank-1")
    assert "CONSORT_PASSPHRASE" not in os.environ  # processes that are started do not see it
    for path in (server / "ca.key", server / "server.key", client / "client.key"):
        assert is_encrypted(path)

    consort(monkeypatch, "site", "admit", server, client / "bank-1.request", *option)
    answer = server / "clients" / "bank-1.pem"
    (client / "bank-1.pem").write_bytes(answer.read_bytes())
    first = ServerCredentials.open(server).admitted()
    monkeypatch.setenv("CONSORT_PASSPHRASE", "abracadabra")
    consort(monkeypatch, "site", "rotate", client, "--name", "bank-1")
    assert "until then the old key is in use" in capsys.readouterr().out
    consort(monkeypatch, "site", "admit", server, client / "bank-1.request", *option)
    (client / "bank-1.pem").write_bytes(answer.read_bytes())
    assert ServerCredentials.open(server).admitted() != first
    ClientCredentials.open(client, "bank-1", b"abracadabra")

    certificate = (server / "server.pem").read_bytes()
    consort(monkeypatch, "site", "rotate", server, *option)
    assert (server / "server.pem").read_bytes() != certificate
    assert ServerCredentials.open(server, b"open sesame").private_key


def test_a_passphrase_that_others_can_read_is_none(tmp_path: Path, monkeypatch, capsys):
    word = tmp_path / "word"
    word.write_text("open sesame")
    word.chmod(0o644)
    command = (
        "site",
        "init",
        tmp_path / "server",
        "--host",
        "localhost",
        "--passphrase-file",
        word,
    )
    with pytest.raises(SystemExit):
        consort(monkeypatch, *command)
    assert "is a secret that others can read: chmod 600" in capsys.readouterr().err
    word.chmod(0o600)
    word.write_text("\n")
    with pytest.raises(SystemExit):
        consort(monkeypatch, *command)
    assert "is empty, but should contain a passphrase" in capsys.readouterr().err


def test_a_key_with_a_passphrase_needs_it(tmp_path: Path, monkeypatch, capsys):
    server = ServerCredentials.create(tmp_path / "server", ["localhost"], 2, b"word")
    made = ClientCredentials.create(tmp_path / "client", "bank-1", b"word")
    made.certificate.write_bytes(server.admit(made.request, 2).read_bytes())
    words = ("client", "--server", "localhost:1", "--credentials", made.folder)
    with pytest.raises(SystemExit):
        consort(monkeypatch, *words, "--data", tmp_path, "--name", "bank-1")
    assert "client.key is encrypted: give --passphrase-file" in capsys.readouterr().err


def test_names_that_look_like_options_are_refused(tmp_path: Path, monkeypatch, capsys):
    with pytest.raises(SystemExit):
        consort(monkeypatch, "site", "join", tmp_path / "client", "--name=-rf")
    assert "client name '-rf'" in capsys.readouterr().err
    assert not (tmp_path / "client").exists()


def test_what_these_commands_write_is_their_owners_only(tmp_path: Path, monkeypatch):
    consort(monkeypatch, "site", "join", tmp_path / "client", "--name", "bank-1")
    (tmp_path / "later").touch()
    assert stat.S_IMODE((tmp_path / "later").stat().st_mode) == 0o600
