"""Issues, reads and verifies certificates."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from consort.deployment.keys import PrivateKey, PublicKey
from consort.errors import UsageError


def certificate_of(
    name: str,
    key: PublicKey,
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
    """Whether a certificate was issued by the authority to a client, and is valid now."""
    return is_issued(certificate, authority) and is_in_time(certificate)


def is_issued(
    certificate: x509.Certificate, authority: x509.Certificate, server: bool = False
) -> bool:
    """Whether a certificate was issued by the authority, at any time.

    Args:
        certificate: The certificate.
        authority: The certificate of the authority.
        server: Whether it must be one of the server instead of a client.
    """
    purpose = ExtendedKeyUsageOID.SERVER_AUTH if server else ExtendedKeyUsageOID.CLIENT_AUTH
    try:
        certificate.verify_directly_issued_by(authority)
        use = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except (InvalidSignature, ValueError, TypeError, x509.ExtensionNotFound):
        return False
    return list(use) == [purpose]


def is_in_time(certificate: x509.Certificate) -> bool:
    """Whether a certificate is valid at this moment."""
    now = datetime.now(UTC)
    return certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc


def common_name(certificate: x509.Certificate) -> str:
    """The common name of the owner of a certificate."""
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value) if len(names) == 1 else ""


def hosts_of(certificate: x509.Certificate) -> list[str]:
    """The names and addresses in the certificate of a server."""
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(name.value) for name in names]


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
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} is not a certificate that can be read") from error


def pem_of(item: x509.Certificate | x509.CertificateSigningRequest) -> bytes:
    """A certificate or a certificate request in PEM form."""
    return item.public_bytes(serialization.Encoding.PEM)
