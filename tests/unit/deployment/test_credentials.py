from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

pytest.importorskip("cryptography", reason="pip install 'fedconsort[flower]'")

from consort.deployment.admission_request import AdmissionRequest
from consort.deployment.certificates import hosts_of, read_certificate
from consort.deployment.credentials import ClientCredentials, ServerCredentials
from consort.deployment.envelope import ClientEnvelopes, ServerEnvelopes
from consort.deployment.keys import (
    is_encrypted,
    new_key,
    openssh_bytes,
    public_bytes,
    read_key,
    write_key,
)
from consort.errors import Failure, UsageError


@pytest.fixture
def server(tmp_path: Path) -> ServerCredentials:
    return ServerCredentials.create(tmp_path / "server", ["fl.example.org", "10.0.0.1"], 2)


def joined(server: ServerCredentials, name: str, days: int = 2) -> ClientCredentials:
    made = ClientCredentials.create(server.folder.parent / name, name)
    made.certificate.write_bytes(server.admit(made.request, days).read_bytes())
    return made


def test_an_admitted_client_is_known_by_its_key(server):
    made = joined(server, "bank-1")
    opened = ClientCredentials.open(made.folder, "bank-1")
    assert opened.authority.read_bytes() == (server.folder / "ca.pem").read_bytes()
    assert list(server.admitted()) == ["bank-1"]
    assert server.admitted()["bank-1"].startswith(b"-----BEGIN PUBLIC KEY-----")


def test_secrets_are_for_their_owner_only(server):
    made = joined(server, "bank-1")
    for path in (server.folder / "ca.key", server.folder / "server.key", made.key):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for path in (made.request, made.certificate):
        assert b"PRIVATE" not in path.read_bytes()


def test_the_certificate_of_the_server_holds_for_its_hosts(server):
    from cryptography import x509

    certificate = x509.load_pem_x509_certificate((server.folder / "server.pem").read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["fl.example.org", "localhost"]
    assert list(map(str, names.get_values_for_type(x509.IPAddress))) == ["10.0.0.1", "127.0.0.1"]


def test_a_revoked_client_is_no_longer_admitted(server):
    joined(server, "bank-1")
    joined(server, "bank-2")
    server.revoke("bank-1")
    assert list(server.admitted()) == ["bank-2"]
    with pytest.raises(UsageError, match="no client 'bank-1' is admitted"):
        server.revoke("bank-1")


def test_an_expired_certificate_admits_nobody_on_either_side(server):
    made = joined(server, "bank-1", days=0)
    assert server.admitted() == {}
    with pytest.raises(UsageError, match=r"bank-1.pem is valid only until .*: ask"):
        ClientCredentials.open(made.folder, "bank-1")
    made.certificate.write_bytes(server.admit(made.request, 2).read_bytes())
    ClientCredentials.open(made.folder, "bank-1")


def test_a_certificate_of_another_authority_admits_nobody(server, tmp_path):
    other = ServerCredentials.create(tmp_path / "other" / "server", ["localhost"], 2)
    made = joined(other, "bank-1")
    (server.folder / "clients" / "bank-1.pem").write_bytes(made.certificate.read_bytes())
    assert server.admitted() == {}


def test_a_name_belongs_to_one_key(server, tmp_path):
    joined(server, "bank-1")
    again = ClientCredentials.create(tmp_path / "again", "bank-1")
    with pytest.raises(
        UsageError, match="bank-1 is already admitted with another key: revoke that"
    ):
        server.admit(again.request, 2)
    server.revoke("bank-1")
    server.admit(again.request, 2)


def test_a_certificate_belongs_to_one_key(server, tmp_path):
    made = joined(server, "bank-1")
    other = ClientCredentials.create(tmp_path / "other", "bank-1")
    other.certificate.write_bytes(made.certificate.read_bytes())
    with pytest.raises(UsageError, match=r"bank-1.pem does not belong to client.key"):
        ClientCredentials.open(other.folder, "bank-1")


NO_NAMES = (
    "../evil",
    "a/b",
    "",
    "two words",
    "-rf",
    "--help",
    ".",
    "..",
    ".hidden",
    "a\n",
    "a\x00",
)
LOOK_ALIKES = ("b\u0430nk", "b\u00e4nk", "\u0661")


@pytest.mark.parametrize("name", [*NO_NAMES, *LOOK_ALIKES, "x" * 65])
def test_names_are_names(name, server, tmp_path):
    with pytest.raises(UsageError, match="client name"):
        ClientCredentials.create(tmp_path / "client", name)


def test_what_is_missing_is_named(server, tmp_path):
    with pytest.raises(UsageError, match=r"has no ca.pem: create it with consort site init"):
        ServerCredentials.open(tmp_path / "empty")
    with pytest.raises(UsageError, match=r"has no client.key: create it with consort site join"):
        ClientCredentials.open(tmp_path / "empty", "bank-1")
    ClientCredentials.create(tmp_path / "new", "bank-1")
    with pytest.raises(UsageError, match=r"has no bank-1.pem: send bank-1.request to the operator"):
        ClientCredentials.open(tmp_path / "new", "bank-1")
    with pytest.raises(UsageError, match="already contains a key"):
        ClientCredentials.create(tmp_path / "new", "bank-1")
    with pytest.raises(UsageError, match="already contains an authority"):
        ServerCredentials.create(server.folder, ["localhost"], 2)
    (tmp_path / "nonsense").write_text("nonsense")
    with pytest.raises(UsageError, match="is not a request created by consort site join"):
        server.admit(tmp_path / "nonsense", 2)
    made = ClientCredentials.create(tmp_path / "late", "bank-9")
    (server.folder / "ca.key").unlink()
    with pytest.raises(UsageError, match=r"ca.key is missing, but needed to admit clients"):
        server.admit(made.request, 2)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_every_file_and_folder_is_for_its_owner_only_whatever_the_umask(tmp_path):
    before = os.umask(0)
    try:
        server = ServerCredentials.create(tmp_path / "server", ["localhost"], 2)
        made = joined(server, "bank-1")
        ClientCredentials.open(made.folder, "bank-1").rotate()
        server.rotate(2)
    finally:
        os.umask(before)
    for folder in (server.folder, made.folder):
        assert mode(folder) == 0o700
        for path in folder.rglob("*"):
            if path != made.certificate:  # written by this test
                assert mode(path) == (0o700 if path.is_dir() else 0o600), path


@pytest.mark.parametrize("name", ["ca.key", "server.key"])
def test_a_secret_of_the_server_that_others_can_read_is_named(name, server):
    path = server.folder / name
    path.chmod(0o640)
    with pytest.raises(UsageError, match=f"{name} is a secret that others can read: chmod 600 /"):
        ServerCredentials.open(server.folder)


def test_a_secret_of_a_client_that_others_can_read_is_named(server):
    made = joined(server, "bank-1")
    made.key.chmod(0o604)
    with pytest.raises(UsageError, match=r"client.key is a secret that others can read: chmod 600"):
        ClientCredentials.open(made.folder, "bank-1")


@pytest.mark.parametrize("content", [b"nonsense", b"", b"-----BEGIN CERTIFICATE-----\nAA==\n"])
def test_a_file_that_cannot_be_read_admits_nobody_and_stops_nobody(content, server):
    joined(server, "bank-1")
    path = server.folder / "clients" / "bank-2.pem"
    path.write_bytes(content)
    keys, wrong = server.admissions()
    assert list(keys) == ["bank-1"]
    assert wrong == {str(path): "is not a certificate that can be read"}


def test_a_certificate_under_another_name_admits_nobody(server):
    """Otherwise revoking the name would not revoke the client."""
    made = joined(server, "bank-1")
    folder = server.folder / "clients"
    (folder / "bank-1.pem").rename(folder / "other.pem")
    assert server.admissions() == (
        {},
        {str(folder / "other.pem"): "is the certificate of 'bank-1'"},
    )
    assert made.certificate.exists()


def test_the_certificate_of_the_server_is_none_of_a_client(server):
    (server.folder / "clients" / "fl.example.org.pem").write_bytes(
        (server.folder / "server.pem").read_bytes()
    )
    keys, wrong = server.admissions()
    assert not keys
    assert list(wrong.values()) == ["has expired, or was not issued here to a client"]


def test_an_interrupted_admission_leaves_the_certificate_as_it_was(server, monkeypatch):
    made = joined(server, "bank-1")
    before = (server.folder / "clients" / "bank-1.pem").read_bytes()

    def broken(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(Failure, match="No space"):
        server.admit(made.request, 5)
    assert (server.folder / "clients" / "bank-1.pem").read_bytes() == before


def test_keys_with_a_passphrase(tmp_path):
    word = b"open sesame"
    server = ServerCredentials.create(tmp_path / "server", ["localhost"], 2, word)
    made = ClientCredentials.create(tmp_path / "bank-1", "bank-1", word)
    made.certificate.write_bytes(server.admit(made.request, 2).read_bytes())
    for path in (server.folder / "ca.key", server.folder / "server.key", made.key):
        assert is_encrypted(path)
    opened = ClientCredentials.open(made.folder, "bank-1", word)
    assert public_bytes(opened.private_key.public_key()) == server.admitted()["bank-1"]
    assert "sesame" not in repr(opened) + repr(server)
    with pytest.raises(UsageError, match=r"client.key is encrypted: give --passphrase-file"):
        ClientCredentials.open(made.folder, "bank-1")
    with pytest.raises(UsageError, match=r"client.key cannot be read: the passphrase is wrong"):
        ClientCredentials.open(made.folder, "bank-1", b"wrong")
    with pytest.raises(UsageError, match=r"ca.key is encrypted"):
        ServerCredentials.open(server.folder).admit(made.request, 2)
    with pytest.raises(UsageError, match=r"server.key is encrypted"):
        _ = ServerCredentials.open(server.folder).private_key


def test_a_key_of_an_older_version_is_read(tmp_path):
    key = new_key()
    path = tmp_path / "client.key"
    path.write_bytes(openssh_bytes(key))
    path.chmod(0o600)
    assert read_key(path).public_key() == key.public_key()


def test_the_server_gets_a_new_key_and_clients_notice_nothing(server):
    made = joined(server, "bank-1")
    before = server.private_key.public_key()
    question = [("bank-1", "0" * 32, 1, {"header": b"{}"})]
    server.rotate(3)
    assert server.private_key.public_key() != before
    certificate = read_certificate(server.folder / "server.pem")
    assert hosts_of(certificate) == ["fl.example.org", "10.0.0.1", "localhost", "127.0.0.1"]
    (sealed,) = ServerEnvelopes.of(server, {}).seal(question)
    client = ClientEnvelopes.of(ClientCredentials.open(made.folder, "bank-1"))
    assert client.open(sealed)[1] == {"header": b"{}"}


def test_a_key_and_a_certificate_that_do_not_belong_together_are_named(server):
    write_key(server.folder / "server.key", new_key(), None)
    with pytest.raises(UsageError, match=r"does not belong to server.pem: make new ones with cons"):
        _ = server.private_key
    server.rotate(2)
    assert server.private_key


def test_a_client_gets_a_new_key_with_the_consent_of_the_old_one(server):
    made = joined(server, "bank-1")
    old = server.admitted()["bank-1"]
    client = ClientCredentials.open(made.folder, "bank-1")
    client.rotate()
    ClientCredentials.open(made.folder, "bank-1")
    assert public_bytes(client.private_key.public_key()) == old  # until the answer is there
    made.certificate.write_bytes(server.admit(client.request, 2).read_bytes())
    new = server.admitted()["bank-1"]
    assert new != old
    opened = ClientCredentials.open(made.folder, "bank-1")
    assert public_bytes(opened.private_key.public_key()) == new
    assert not (made.folder / "client.key.new").exists()


def test_a_request_to_replace_a_key_needs_the_consent_of_exactly_this_key(server, tmp_path):
    joined(server, "bank-1")
    joined(server, "bank-2")
    for signer in (new_key(), ClientCredentials(tmp_path / "bank-2", "bank-2").private_key):
        forged = tmp_path / "forged.request"
        forged.write_bytes(AdmissionRequest.written("bank-1", new_key(), signer))
        with pytest.raises(UsageError, match="bank-1 is already admitted with another key"):
            server.admit(forged, 2)


def test_an_endless_request_is_not_read_to_its_end(server, tmp_path):
    (tmp_path / "endless").write_bytes(bytes(1 << 20))
    with pytest.raises(UsageError, match="is not a request created by"):
        server.admit(tmp_path / "endless", 2)
