"""Creates, writes, reads and verifies keys and certificates."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from consort.errors import UsageError

PrivateKey = ec.EllipticCurvePrivateKey


def public_bytes(key: Any) -> bytes:
    """A public key in the PEM form that Flower's nodes use."""
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    data: bytes = key.public_bytes(serialization.Encoding.PEM, form)
    return data


def new_key() -> PrivateKey:
    """Generates a private key."""
    return ec.generate_private_key(ec.SECP384R1())


def certificate_of(
    name: str,
    key: ec.EllipticCurvePublicKey,
    signer: PrivateKey,
    authority: x509.Certificate | None,
    days: int,
    hosts: list[str] | None = None,
) -> x509.Certificate:
    """Issues a certificate for the authority itself, for the server (with hosts) or for a client.

    Args:
        name: The common name of the owner.
        key: The public key of the owner.
        signer: The private key of the authority.
        authority: The certificate of the authority; `None` issues that certificate itself.
        days: How long the certificate is valid.
        hosts: The names and addresses of the server.
    """
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(authority.subject if authority else subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))  # the clocks of machines differ
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


def is_valid(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    """Whether a certificate is signed by the authority and valid at this moment."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, ValueError, TypeError):
        return False
    now = datetime.now(UTC)
    return certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc


def common_name(certificate: x509.Certificate) -> str:
    """The common name of the owner of a certificate."""
    (name,) = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(name.value)


def read_certificate(path: Path) -> x509.Certificate:
    """The first certificate in a file.

    Raises:
        UsageError: If the file is not a certificate.
    """
    return read_chain(path)[0]


def read_chain(path: Path) -> list[x509.Certificate]:
    """All certificates in a file.

    Raises:
        UsageError: If the file is not a certificate.
    """
    try:
        return x509.load_pem_x509_certificates(path.read_bytes())
    except ValueError as error:
        raise UsageError(f"{path} is not a certificate") from error


def read_key(path: Path) -> PrivateKey:
    """The private key in a file.

    Raises:
        UsageError: If the file is missing or contains another kind of key.
    """
    if not path.is_file():
        raise UsageError(f"{path} is missing, but needed to admit clients: put it back there")
    key = serialization.load_pem_private_key(path.read_bytes(), None)
    if not isinstance(key, PrivateKey):
        raise UsageError(f"{path} is not a key created by consort site init")
    return key


def pem_of(item: x509.Certificate | x509.CertificateSigningRequest) -> bytes:
    """A certificate or a certificate request in PEM form."""
    return item.public_bytes(serialization.Encoding.PEM)


def pem_of_key(
    key: PrivateKey, form: serialization.PrivateFormat = serialization.PrivateFormat.PKCS8
) -> bytes:
    """A private key in PEM form, without encryption."""
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
