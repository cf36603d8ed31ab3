"""Credentials: a certificate authority, a certificate for the server, a key for every client.

Private keys never leave the machine on which they were created: a client sends a request, and the
operator of the server answers with a certificate. Neither of these two files is secret.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509

from consort.core.files import make_folder, write_file
from consort.core.registry import check_name
from consort.deployment.admission_request import AdmissionRequest
from consort.deployment.certificates import (
    certificate_of,
    common_name,
    hosts_of,
    is_valid,
    pem_of,
    read_certificate,
    read_chain,
)
from consort.deployment.keys import (
    PrivateKey,
    check_private,
    new_key,
    public_bytes,
    read_key,
    write_key,
)
from consort.errors import UsageError

_LOCAL = ("localhost", "127.0.0.1")
_AUTHORITY_DAYS = 3650


@dataclass(frozen=True)
class ServerCredentials:
    """The credentials folder of the server."""

    folder: Path
    passphrase: bytes | None = field(default=None, repr=False)

    @classmethod
    def create(
        cls, folder: Path, hosts: list[str], days: int, passphrase: bytes | None = None
    ) -> ServerCredentials:
        """Creates the authority and the server's certificate.

        Args:
            folder: The folder to create.
            hosts: The names and addresses under which clients reach the server.
            days: How long the server's certificate is valid.
            passphrase: Encrypts the private keys, if there is one.

        Raises:
            UsageError: If the folder already contains an authority.
        """
        if (folder / "ca.key").exists():
            raise UsageError(f"{folder} already contains an authority: choose another folder")
        made, key = cls(folder, passphrase), new_key()
        authority = certificate_of(
            "Consort authority", key.public_key(), key, None, _AUTHORITY_DAYS
        )
        write_file(folder / "ca.pem", pem_of(authority))
        make_folder(folder / "clients")
        made._issue(key, [*dict.fromkeys([*hosts, *_LOCAL])], days)
        write_key(folder / "ca.key", key, passphrase)
        return made

    @classmethod
    def open(cls, folder: Path, passphrase: bytes | None = None) -> ServerCredentials:
        """Opens a folder that `create` made.

        Args:
            folder: The folder.
            passphrase: The passphrase of its private keys, if they are encrypted.

        Raises:
            UsageError: If a file is missing, or a secret can be read by others.
        """
        for name in ("ca.pem", "server.pem", "server.key"):
            if not (folder / name).is_file():
                raise UsageError(
                    f"{folder} has no {name}: create it with consort site init {folder}"
                )
        for name in ("ca.key", "server.key"):
            if (folder / name).exists():
                check_private(folder / name)
        return cls(folder, passphrase)

    @property
    def private_key(self) -> PrivateKey:
        """The private key of the server.

        Raises:
            UsageError: If it cannot be read, or does not belong to the certificate.
        """
        key = read_key(self.folder / "server.key", self.passphrase, "by the server")
        if read_certificate(self.folder / "server.pem").public_key() != key.public_key():
            raise UsageError(
                f"{self.folder / 'server.key'} does not belong to server.pem: make new ones with "
                f"consort site rotate {self.folder}"
            )
        return key

    def rotate(self, days: int) -> None:
        """Makes a new key and certificate of the server, for the same hosts and authority.

        Args:
            days: How long the certificate is valid.
        """
        hosts = hosts_of(read_certificate(self.folder / "server.pem"))
        self._issue(self._authority_key("to issue a certificate"), hosts, days)

    def admit(self, path: Path, days: int) -> Path:
        """Signs the request of a client.

        Args:
            path: The file that the client sent.
            days: How long the certificate is valid.

        Returns:
            The certificate file to send back.

        Raises:
            UsageError: If the request is not valid, or the client is admitted with another key
                that has not signed the request.
        """
        request = AdmissionRequest.read(path)
        client, place = request.name, self.folder / "clients" / f"{request.name}.pem"
        if place.exists() and not request.replaces(read_certificate(place).public_key()):
            raise UsageError(
                f"{client} is already admitted with another key: revoke that one first "
                f"(consort site revoke {self.folder} {client}), or let the client make the "
                "request with consort site rotate"
            )
        authority = read_certificate(self.folder / "ca.pem")
        signer = self._authority_key("to admit clients")
        signed = certificate_of(client, request.key, signer, authority, days)
        write_file(place, pem_of(signed) + pem_of(authority))
        return place

    def revoke(self, client: str) -> None:
        """Revokes the admission of a client; a running server notices at once.

        Raises:
            UsageError: If no such client is admitted.
        """
        check_name(client, ascii_only=True)
        path = self.folder / "clients" / f"{client}.pem"
        if not path.exists():
            raise UsageError(f"no client {client!r} is admitted in {self.folder}")
        path.rename(path.with_suffix(".revoked"))

    def admitted(self) -> dict[str, bytes]:
        """The public key of every client whose certificate is valid now, by name."""
        return self.admissions()[0]

    def admissions(self) -> tuple[dict[str, bytes], dict[str, str]]:
        """Reads the folder of certificates.

        Returns:
            The public key of every client whose certificate is valid now, by name; and what is
            wrong with the other files, each of which admits nobody, by path.
        """
        authority = read_certificate(self.folder / "ca.pem")
        keys, wrong = dict[str, bytes](), dict[str, str]()
        for path in sorted((self.folder / "clients").glob("*.pem")):
            try:
                certificate = read_certificate(path)
            except UsageError:
                wrong[str(path)] = "is not a certificate that can be read"
                continue
            if common_name(certificate) != path.stem:
                wrong[str(path)] = f"is the certificate of {common_name(certificate)!r}"
            elif is_valid(certificate, authority):
                keys[path.stem] = public_bytes(certificate.public_key())
            else:
                wrong[str(path)] = "has expired, or was not issued here to a client"
        return keys, wrong

    def _issue(self, signer: PrivateKey, hosts: list[str], days: int) -> None:
        authority = read_certificate(self.folder / "ca.pem")
        key = new_key(fast=True)
        made = certificate_of(hosts[0], key.public_key(), signer, authority, days, hosts)
        write_key(self.folder / "server.key", key, self.passphrase)
        write_file(self.folder / "server.pem", pem_of(made))

    def _authority_key(self, use: str) -> PrivateKey:
        return read_key(self.folder / "ca.key", self.passphrase, use)


@dataclass(frozen=True)
class ClientCredentials:
    """The credentials folder of a client."""

    folder: Path
    name: str
    passphrase: bytes | None = field(default=None, repr=False)

    @classmethod
    def create(cls, folder: Path, name: str, passphrase: bytes | None = None) -> ClientCredentials:
        """Creates a key and a request for the operator of the server.

        Args:
            folder: The folder to create.
            name: The client's name in the federation.
            passphrase: Encrypts the private key, if there is one.

        Raises:
            UsageError: If the name is not valid, or the folder already contains a key.
        """
        check_name(name, ascii_only=True)
        made, key = cls(folder, name, passphrase), new_key()
        if made.key.exists():
            raise UsageError(f"{folder} already contains a key: choose another folder")
        write_file(made.request, AdmissionRequest.written(name, key))
        write_key(made.key, key, passphrase)
        return made

    @classmethod
    def open(cls, folder: Path, name: str, passphrase: bytes | None = None) -> ClientCredentials:
        """Opens a folder with a key and the certificate that belongs to it.

        A certificate that belongs to the key that `rotate` made puts that key in place of the old.

        Args:
            folder: The folder.
            name: The client's name in the federation.
            passphrase: The passphrase of the private key, if it is encrypted.

        Raises:
            UsageError: If a file is missing, does not belong to the client, has expired, or can be
                read by others.
        """
        check_name(name, ascii_only=True)
        found = cls(folder, name, passphrase)
        if not found.key.is_file():
            raise UsageError(
                f"{folder} has no client.key: create it with consort site join {folder} "
                f"--name {name}"
            )
        if not found.certificate.is_file():
            raise UsageError(
                f"{folder} has no {name}.pem: send {found.request.name} to the operator of "
                "the server and put the answer there"
            )
        authority = found._checked()
        write_file(found.authority, pem_of(authority))
        return found

    def rotate(self) -> None:
        """Makes a new key and a request that the present key signs as well.

        The present key stays in use until the certificate for the new one is here.
        """
        key = new_key()
        write_key(self.folder / "client.key.new", key, self.passphrase)
        write_file(self.request, AdmissionRequest.written(self.name, key, self.private_key))

    @property
    def private_key(self) -> PrivateKey:
        """The private key itself."""
        return read_key(self.key, self.passphrase, "by the client")

    @property
    def key(self) -> Path:
        """The file of the private key."""
        return self.folder / "client.key"

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

    def _checked(self) -> x509.Certificate:
        """Verifies the certificate; returns that of the authority."""
        chain = read_chain(self.certificate)
        certificate, authority = chain[0], chain[-1]
        new = self.folder / "client.key.new"
        if new.exists() and _belongs(certificate, read_key(new, self.passphrase)):
            new.rename(self.key)
        if common_name(certificate) != self.name or not _belongs(certificate, self.private_key):
            raise UsageError(f"{self.certificate} does not belong to client.key in {self.folder}")
        if not is_valid(certificate, authority):
            end = certificate.not_valid_after_utc.date()
            raise UsageError(
                f"{self.certificate} is valid only until {end}: ask the operator of the "
                "server for a new one"
            )
        return authority


def _belongs(certificate: x509.Certificate, key: PrivateKey) -> bool:
    return bool(certificate.public_key() == key.public_key())
