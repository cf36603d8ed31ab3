"""What a client on a machine of its own keeps to itself, whatever a server asks for."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from torch import Generator

from consort.core.files import read_checked, sync_folder, write_checked
from consort.core.limits import OWN
from consort.core.messages import Payload, State
from consort.core.randomness import Randomness
from consort.core.wire import decode, encode
from consort.deployment.certificates import common_name, is_valid, read_certificate
from consort.deployment.counts import Counts
from consort.deployment.credentials import ClientCredentials
from consort.deployment.keys import PrivateKey, PublicKey
from consort.deployment.privacy_ledger import Account
from consort.errors import Failure, Refused
from consort.federation.site import Site, Use
from consort.protection.secret_noise import Secret

_ONCE = "one-time"


@dataclass(frozen=True)
class Identity:
    """A client's key and certificate, with which it signs what other clients rely on."""

    key: PrivateKey = field(repr=False)
    certificate: x509.Certificate
    authority: x509.Certificate

    @classmethod
    def of(cls, credentials: ClientCredentials) -> Identity:
        """The identity in a credentials folder."""
        certificate = read_certificate(credentials.certificate)
        authority = read_certificate(credentials.authority)
        return cls(credentials.private_key, certificate, authority)

    def sign(self, statement: bytes) -> bytes:
        """A signature, followed by the certificate; the first byte is the signature's length."""
        signature = self.key.sign(statement, ec.ECDSA(hashes.SHA256()))
        certificate = self.certificate.public_bytes(serialization.Encoding.DER)
        return bytes([len(signature)]) + signature + certificate

    def verify(self, client: str, statement: bytes, proof: bytes) -> None:
        """Checks what `sign` returned on the machine of another client.

        Args:
            client: The name of the other client.
            statement: What it signed.
            proof: The proof.

        Raises:
            Refused: If it is not the signature of this client, or the authority of the federation
                has not admitted it.
        """
        try:
            end = 1 + proof[0]
            certificate = x509.load_der_x509_certificate(proof[end:])
            key = certificate.public_key()
            known = is_valid(certificate, self.authority) and common_name(certificate) == client
            if known and isinstance(key, PublicKey):
                key.verify(proof[1:end], statement, ec.ECDSA(hashes.SHA256()))
                return
        except (InvalidSignature, LookupError, ValueError):
            pass
        raise Refused(f"the keys that are said to be those of {client} are not signed by it")


@dataclass(frozen=True)
class OwnMachine(Site):
    """The site of a client that shares its machine with nobody.

    Randomness comes from the operating system and is new for every answer. One-time secrets are in
    a file of their own, which no message turns back. Uses are charged to the site's ledger.
    """

    folder: Path
    """The folder of the run on this machine."""
    account: Account
    """Where uses of training data are charged."""
    counts: Counts = field(default_factory=Counts)
    """How exactly the client tells how many examples it has."""
    identity: Identity | None = None
    """Signs what other clients rely on; without one, nothing is signed or checked."""
    fewest: int = Site.fewest
    """The fewest clients, itself included, among whom it hides an answer."""

    @property
    def limited(self) -> bool:  # type: ignore[override]
        """Whether there is a limit on what may be charged."""
        return self.account.limit is not None

    def randomness(self, generator: Generator) -> Randomness:  # noqa: ARG002
        """Draws from the operating system."""
        return Secret()

    def afford(self, use: Use) -> None:
        """Checks that there is room for a use: see `Site.afford`."""
        self.account.afford(use)

    def charge(self, state: State, use: Use) -> None:  # noqa: ARG002
        """Records a use in the ledger, on disk: see `Site.charge`."""
        self.account.charge(use)

    def charged(self, state: State) -> list[Use]:  # noqa: ARG002
        """All uses of this run, whatever the server counts: see `Site.charged`."""
        return self.account.uses

    def secrets(self, state: State) -> State:  # noqa: ARG002
        """The one-time secrets on disk: see `Site.secrets`.

        Raises:
            Failure: If the file is damaged.
        """
        path = self.folder / _ONCE
        if not path.exists():
            return {}
        try:
            found: State = decode(read_checked(path), limits=OWN)
            return found
        except (Failure, Refused) as error:
            path.unlink()
            raise Failure("its one-time secrets are damaged and were deleted") from error

    def keep(self, state: State, secrets: State) -> None:  # noqa: ARG002
        """Replaces the one-time secrets, on disk: see `Site.keep`."""
        if secrets:
            write_checked(self.folder / _ONCE, encode(secrets))
        else:
            (self.folder / _ONCE).unlink()
            sync_folder(self.folder)

    def vouch(self, statement: bytes) -> bytes:
        """Signs a statement for this run: see `Site.vouch`."""
        return self.identity.sign(self._bound(statement)) if self.identity else b""

    def verify(self, client: str, statement: bytes, proof: bytes) -> None:
        """Checks the signature of another client of this run: see `Site.verify`."""
        if self.identity:
            self.identity.verify(client, self._bound(statement), proof)

    def disclosed(self, content: Payload) -> Payload:
        """Rounds counts, or leaves them out: see `Counts`."""
        return self.counts.answer(content)

    def _bound(self, statement: bytes) -> bytes:
        return b"consort statement\0" + self.account.run.encode() + b" " + statement
