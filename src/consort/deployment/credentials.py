"""Credentials: a certificate authority, a certificate for the server, a key for every client.

Private keys never leave the machine on which they were created: a client sends a request, and the
operator of the server answers with a certificate. Neither of these two files is secret.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from consort.core.registry import check_name
from consort.deployment.certificates import (
    PrivateKey,
    certificate_of,
    common_name,
    is_valid,
    new_key,
    pem_of,
    pem_of_key,
    public_bytes,
    read_certificate,
    read_chain,
    read_key,
)
from consort.errors import UsageError

_LOCAL = ("localhost", "127.0.0.1")
_AUTHORITY_DAYS = 3650


@dataclass(frozen=True)
class ServerCredentials:
    """The credentials folder of the server."""

    folder: Path

    @classmethod
    def create(cls, folder: Path, hosts: list[str], days: int) -> ServerCredentials:
        """Creates the authority, the server's certificate and the secret of Flower's executors.

        Args:
            folder: The folder to create.
            hosts: The names and addresses under which clients reach the server.
            days: How long the server's certificate is valid.

        Raises:
            UsageError: If the folder already contains an authority.
        """
        if (folder / "ca.key").exists():
            raise UsageError(f"{folder} already contains an authority: choose another folder")
        key, server = new_key(), new_key()
        authority = certificate_of(
            "Consort authority", key.public_key(), key, None, _AUTHORITY_DAYS
        )
        names = [*dict.fromkeys([*hosts, *_LOCAL])]
        certificate = certificate_of(hosts[0], server.public_key(), key, authority, days, names)
        _write_secret(folder / "ca.key", pem_of_key(key))
        _write_secret(folder / "server.key", pem_of_key(server))
        _write_secret(folder / "executor.secret", secrets.token_bytes(32))
        _write(folder / "ca.pem", pem_of(authority))
        _write(folder / "server.pem", pem_of(certificate))
        (folder / "clients").mkdir(exist_ok=True)
        return cls(folder)

    @classmethod
    def open(cls, folder: Path) -> ServerCredentials:
        """Opens a folder that `create` made.

        Raises:
            UsageError: If a file is missing.
        """
        for name in ("ca.pem", "server.pem", "server.key", "executor.secret"):
            if not (folder / name).is_file():
                raise UsageError(
                    f"{folder} has no {name}: create it with consort site init {folder}"
                )
        return cls(folder)

    def admit(self, request: Path, days: int) -> Path:
        """Signs the request of a client.

        Args:
            request: The file that the client sent.
            days: How long the certificate is valid.

        Returns:
            The certificate file to send back.

        Raises:
            UsageError: If the request is not valid, or the client is admitted with another key.
        """
        try:
            asked = x509.load_pem_x509_csr(request.read_bytes())
            (name,) = asked.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        except (OSError, ValueError) as error:
            raise UsageError(f"{request} is not a request created by consort site join") from error
        client, key = str(name.value), asked.public_key()
        if not asked.is_signature_valid or not isinstance(key, ec.EllipticCurvePublicKey):
            raise UsageError(f"{request} is damaged: ask the client to send it again")
        check_name(client)
        path = self.folder / "clients" / f"{client}.pem"
        if path.exists() and read_certificate(path).public_key() != key:
            raise UsageError(
                f"{client} is already admitted with another key: revoke that one first "
                f"(consort site revoke {self.folder} {client})"
            )
        authority = read_certificate(self.folder / "ca.pem")
        signed = certificate_of(client, key, read_key(self.folder / "ca.key"), authority, days)
        _write(path, pem_of(signed) + pem_of(authority))
        return path

    def revoke(self, client: str) -> None:
        """Revokes the admission of a client; a running server notices within seconds.

        Raises:
            UsageError: If no such client is admitted.
        """
        path = self.folder / "clients" / f"{client}.pem"
        if not path.exists():
            raise UsageError(f"no client {client!r} is admitted in {self.folder}")
        path.rename(path.with_suffix(".revoked"))

    def admitted(self) -> dict[str, bytes]:
        """The public key of every client whose certificate is valid now, by name."""
        authority = read_certificate(self.folder / "ca.pem")
        keys = {}
        for path in sorted((self.folder / "clients").glob("*.pem")):
            certificate = read_certificate(path)
            if is_valid(certificate, authority):
                keys[common_name(certificate)] = public_bytes(certificate.public_key())
        return keys


@dataclass(frozen=True)
class ClientCredentials:
    """The credentials folder of a client."""

    folder: Path
    name: str

    @classmethod
    def create(cls, folder: Path, name: str) -> ClientCredentials:
        """Creates a key and a request for the operator of the server.

        Raises:
            UsageError: If the name is not valid, or the folder already contains a key.
        """
        check_name(name)
        if (folder / "client.key").exists():
            raise UsageError(f"{folder} already contains a key: choose another folder")
        key = new_key()
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        request = x509.CertificateSigningRequestBuilder().subject_name(subject)
        form = serialization.PrivateFormat.OpenSSH  # the form that a SuperNode reads
        _write_secret(folder / "client.key", pem_of_key(key, form))
        made = cls(folder, name)
        _write(made.request, pem_of(request.sign(key, hashes.SHA256())))
        return made

    @classmethod
    def open(cls, folder: Path, name: str) -> ClientCredentials:
        """Opens a folder with a key and the certificate that belongs to it.

        Raises:
            UsageError: If a file is missing, does not belong to the client, or has expired.
        """
        found = cls(folder, name)
        if not (folder / "client.key").is_file():
            raise UsageError(
                f"{folder} has no client.key: create it with consort site join {folder} "
                f"--name {name}"
            )
        if not found.certificate.is_file():
            raise UsageError(
                f"{folder} has no {name}.pem: send {found.request.name} to the operator of "
                "the server and put the answer there"
            )
        certificate, authority = read_chain(found.certificate)
        key = serialization.load_ssh_private_key((folder / "client.key").read_bytes(), None)
        if common_name(certificate) != name or certificate.public_key() != key.public_key():
            raise UsageError(f"{found.certificate} does not belong to client.key in {folder}")
        if not is_valid(certificate, authority):
            end = certificate.not_valid_after_utc.date()
            raise UsageError(
                f"{found.certificate} is valid only until {end}: ask the operator of the "
                "server for a new one"
            )
        _write(found.authority, pem_of(authority))
        return found

    @property
    def key(self) -> Path:
        """The file of the private key."""
        return self.folder / "client.key"

    @property
    def private_key(self) -> PrivateKey:
        """The private key.

        Raises:
            UsageError: If the file contains another kind of key.
        """
        key = serialization.load_ssh_private_key(self.key.read_bytes(), None)
        if not isinstance(key, PrivateKey):
            raise UsageError(f"{self.key} is not a key created by consort site join")
        return key

    @property
    def request(self) -> Path:
        """The request, which is sent to the operator of the server."""
        return self.folder / f"{self.name}.request"

    @property
    def certificate(self) -> Path:
        """The certificate that the operator sends back."""
        return self.folder / f"{self.name}.pem"

    @property
    def authority(self) -> Path:
        """The certificate of the authority, which verifies that of the server."""
        return self.folder / "ca.pem"


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def _write_secret(path: Path, data: bytes) -> None:
    """Writes a file that only its owner may read, from the moment it exists."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_bytes(data)
