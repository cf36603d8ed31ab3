"""The request of a client to be admitted, or to be admitted with another key than before."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from consort.core.registry import check_name
from consort.deployment.certificates import pem_of
from consort.deployment.keys import PrivateKey, PublicKey, public_bytes
from consort.errors import UsageError

_CONSENT = x509.ObjectIdentifier("2.25.90441877025823916460271498237911843365")
"""The attribute with the signature of the key that is replaced (below 2.25, numbers are random)."""
_LARGEST = 1 << 16
_HASH = ec.ECDSA(hashes.SHA256())


@dataclass(frozen=True)
class AdmissionRequest:
    """A request whose sender has the private key of `key`."""

    name: str
    key: PublicKey
    consent: bytes = b""

    @staticmethod
    def written(name: str, key: PrivateKey, old: PrivateKey | None = None) -> bytes:
        """The file of a request.

        Args:
            name: The name of the client.
            key: Its key.
            old: The key that this one shall replace.
        """
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        request = x509.CertificateSigningRequestBuilder().subject_name(subject)
        if old:
            consent = old.sign(_statement(name, key.public_key()), _HASH)
            request = request.add_attribute(_CONSENT, consent.hex().encode())
        return pem_of(request.sign(key, hashes.SHA256()))

    @classmethod
    def read(cls, path: Path) -> AdmissionRequest:
        """Reads and verifies a file that `written` made.

        Raises:
            UsageError: If it is not such a file, or damaged, or the name is not valid.
        """
        try:
            with path.open("rb") as file:
                asked = x509.load_pem_x509_csr(file.read(_LARGEST))
            (name,) = asked.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
            attributes: Any = {found.oid: found.value for found in asked.attributes}
            consent = bytes.fromhex(attributes.get(_CONSENT, b"").decode())
        except (OSError, ValueError) as error:
            raise UsageError(f"{path} is not a request created by consort site join") from error
        key = asked.public_key()
        if not asked.is_signature_valid or not isinstance(key, PublicKey):
            raise UsageError(f"{path} is damaged: ask the client to send it again")
        check_name(str(name.value), ascii_only=True)
        return cls(str(name.value), key, consent)

    def replaces(self, old: Any) -> bool:
        """Whether the request may take the place of an admission with this public key."""
        if old == self.key:
            return True
        try:
            old.verify(self.consent, _statement(self.name, self.key), _HASH)
        except InvalidSignature:
            return False
        return True


def _statement(name: str, key: PublicKey) -> bytes:
    return b"consort rotates\0" + name.encode() + b"\0" + public_bytes(key)
