"""Who may take part: an authority, a certificate for the server, a key for every client.

Private keys never leave the machine they were made on: a client sends a request, the server's
operator answers with a certificate. Both are text files that may be read by anybody.
"""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from consort.errors import UsageError
from consort.registry import check_name

PrivateKey = ec.EllipticCurvePrivateKey
_LOCAL = ("localhost", "127.0.0.1")
_AUTHORITY_DAYS = 3650


@dataclass(frozen=True)
class ServerCredentials:
    """The folder of the server's operator."""

    folder: Path

    @classmethod
    def create(cls, folder: Path, hosts: list[str], days: int) -> ServerCredentials:
        """Makes the authority, the server's certificate and the executors' secret."""
        if (folder / "ca.key").exists():
            raise UsageError(f"{folder} holds an authority already: choose another folder")
        key, server = _new_key(), _new_key()
        authority = _certificate("Consort authority", key.public_key(), key, None, _AUTHORITY_DAYS)
        names = [*dict.fromkeys([*hosts, *_LOCAL])]
        certificate = _certificate(hosts[0], server.public_key(), key, authority, days, names)
        _write_secret(folder / "ca.key", _pem_key(key))
        _write_secret(folder / "server.key", _pem_key(server))
        _write_secret(folder / "executor.secret", secrets.token_bytes(32))
        _write(folder / "ca.pem", _pem(authority))
        _write(folder / "server.pem", _pem(certificate))
        (folder / "clients").mkdir(exist_ok=True)
        return cls(folder)

    @classmethod
    def open(cls, folder: Path) -> ServerCredentials:
        """The folder, if it holds what a server needs."""
        for name in ("ca.pem", "server.pem", "server.key", "executor.secret"):
            if not (folder / name).is_file():
                raise UsageError(f"{folder} has no {name}: make it with consort site init {folder}")
        return cls(folder)

    def admit(self, request: Path, days: int) -> Path:
        """Signs a client's request; what comes out is the file to send back."""
        try:
            asked = x509.load_pem_x509_csr(request.read_bytes())
            (name,) = asked.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        except (OSError, ValueError) as error:
            raise UsageError(f"{request} is not a request of consort site join") from error
        client, key = str(name.value), asked.public_key()
        if not asked.is_signature_valid or not isinstance(key, ec.EllipticCurvePublicKey):
            raise UsageError(f"{request} is damaged: ask for it again")
        check_name(client)
        path = self.folder / "clients" / f"{client}.pem"
        if path.exists() and _read_certificate(path).public_key() != key:
            raise UsageError(
                f"{client} is admitted with another key: revoke that first "
                f"(consort site revoke {self.folder} {client})"
            )
        authority = _read_certificate(self.folder / "ca.pem")
        signed = _certificate(client, key, _read_key(self.folder / "ca.key"), authority, days)
        _write(path, _pem(signed) + _pem(authority))
        return path

    def revoke(self, client: str) -> None:
        """Takes a client's admission back; a running server notices within seconds."""
        path = self.folder / "clients" / f"{client}.pem"
        if not path.exists():
            raise UsageError(f"{self.folder} has admitted no client {client!r}")
        path.rename(path.with_suffix(".revoked"))

    def admitted(self) -> dict[str, bytes]:
        """The public key of every client whose certificate is valid now, by name."""
        authority = _read_certificate(self.folder / "ca.pem")
        keys = {}
        for path in sorted((self.folder / "clients").glob("*.pem")):
            certificate = _read_certificate(path)
            if _valid(certificate, authority):
                keys[_common_name(certificate)] = public_bytes(certificate.public_key())
        return keys


@dataclass(frozen=True)
class ClientCredentials:
    """The folder of one client."""

    folder: Path
    name: str

    @classmethod
    def create(cls, folder: Path, name: str) -> ClientCredentials:
        """Makes a key and a request for the server's operator."""
        check_name(name)
        if (folder / "client.key").exists():
            raise UsageError(f"{folder} holds a key already: choose another folder")
        key = _new_key()
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        request = x509.CertificateSigningRequestBuilder().subject_name(subject)
        form = serialization.PrivateFormat.OpenSSH  # what a SuperNode reads
        _write_secret(folder / "client.key", _pem_key(key, form))
        made = cls(folder, name)
        _write(made.request, _pem(request.sign(key, hashes.SHA256())))
        return made

    @classmethod
    def open(cls, folder: Path, name: str) -> ClientCredentials:
        """The folder, if it holds a key and the certificate that goes with it."""
        found = cls(folder, name)
        if not (folder / "client.key").is_file():
            raise UsageError(
                f"{folder} has no client.key: make it with consort site join {folder} --name {name}"
            )
        if not found.certificate.is_file():
            raise UsageError(
                f"{folder} has no {name}.pem: ask the server's operator for it, with "
                f"{found.request.name}"
            )
        certificate, authority = _read_chain(found.certificate)
        key = serialization.load_ssh_private_key((folder / "client.key").read_bytes(), None)
        if _common_name(certificate) != name or certificate.public_key() != key.public_key():
            raise UsageError(f"{found.certificate} does not belong to client.key in {folder}")
        if not _valid(certificate, authority):
            end = certificate.not_valid_after_utc.date()
            raise UsageError(f"{found.certificate} is valid until {end}: ask for a new one")
        _write(found.authority, _pem(authority))
        return found

    @property
    def key(self) -> Path:
        """The private key."""
        return self.folder / "client.key"

    @property
    def request(self) -> Path:
        """What is sent to the server's operator."""
        return self.folder / f"{self.name}.request"

    @property
    def certificate(self) -> Path:
        """What comes back."""
        return self.folder / f"{self.name}.pem"

    @property
    def authority(self) -> Path:
        """The certificate that the server's is checked with."""
        return self.folder / "ca.pem"


def public_bytes(key: Any) -> bytes:
    """A public key in the form in which nodes show it."""
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    data: bytes = key.public_bytes(serialization.Encoding.PEM, form)
    return data


def _new_key() -> PrivateKey:
    return ec.generate_private_key(ec.SECP384R1())


def _certificate(
    name: str,
    key: ec.EllipticCurvePublicKey,
    signer: PrivateKey,
    authority: x509.Certificate | None,
    days: int,
    hosts: list[str] | None = None,
) -> x509.Certificate:
    """A certificate of the authority itself, of the server (with hosts) or of a client."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(authority.subject if authority else subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))  # clocks differ
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(authority is None, None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
        .add_extension(_usage(authority is None), critical=True)
    )
    if authority:
        purpose = ExtendedKeyUsageOID.SERVER_AUTH if hosts else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
    if hosts:
        names = x509.SubjectAlternativeName([_host(host) for host in hosts])
        builder = builder.add_extension(names, critical=False)
    return builder.sign(signer, hashes.SHA256())


def _usage(authority: bool) -> x509.KeyUsage:
    others: Mapping[str, bool] = dict.fromkeys(
        (
            "content_commitment",
            "key_encipherment",
            "data_encipherment",
            "key_agreement",
            "encipher_only",
            "decipher_only",
        ),
        False,
    )
    return x509.KeyUsage(
        digital_signature=not authority, key_cert_sign=authority, crl_sign=authority, **others
    )


def _host(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _valid(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, ValueError, TypeError):
        return False
    now = datetime.now(UTC)
    return certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc


def _common_name(certificate: x509.Certificate) -> str:
    (name,) = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(name.value)


def _read_certificate(path: Path) -> x509.Certificate:
    return _read_chain(path)[0]


def _read_chain(path: Path) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(path.read_bytes())
    except ValueError as error:
        raise UsageError(f"{path} is not a certificate") from error


def _read_key(path: Path) -> PrivateKey:
    if not path.is_file():
        raise UsageError(f"{path} is needed to admit clients: bring it back for a moment")
    key = serialization.load_pem_private_key(path.read_bytes(), None)
    if not isinstance(key, PrivateKey):
        raise UsageError(f"{path} is not the key of consort site init")
    return key


def _pem(item: x509.Certificate | x509.CertificateSigningRequest) -> bytes:
    return item.public_bytes(serialization.Encoding.PEM)


def _pem_key(
    key: PrivateKey, form: serialization.PrivateFormat = serialization.PrivateFormat.PKCS8
) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def _write_secret(path: Path, data: bytes) -> None:
    """A file that only its owner may read, from its first moment on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_bytes(data)
