from __future__ import annotations

import stat
from pathlib import Path

import pytest

pytest.importorskip("cryptography", reason="pip install 'fedconsort[flower]'")

from consort.deployment.credentials import ClientCredentials, ServerCredentials
from consort.errors import UsageError


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


@pytest.mark.parametrize("name", ["../evil", "a/b", "", "two words"])
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
