"""Private keys in files that only their owner can read, encrypted if there is a passphrase."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from consort.core.files import write_file
from consort.errors import UsageError

PrivateKey = ec.EllipticCurvePrivateKey
PublicKey = ec.EllipticCurvePublicKey
_ENCRYPTED = b"-----BEGIN ENCRYPTED PRIVATE KEY-----"
_OTHERS = 0o077  # the permissions of everybody but the owner


def new_key(fast: bool = False) -> PrivateKey:
    """Generates a private key.

    Args:
        fast: Whether to use P-256 instead of P-384. Connections to a server whose key is fast cost
            it a tenth of the time; nodes of Flower accept P-384 only.
    """
    return ec.generate_private_key(ec.SECP256R1() if fast else ec.SECP384R1())


def public_bytes(key: Any) -> bytes:
    """A public key in the PEM form that Flower's nodes use."""
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    data: bytes = key.public_bytes(serialization.Encoding.PEM, form)
    return data


def read_public(data: bytes) -> PublicKey:
    """The key that `public_bytes` wrote.

    Raises:
        UsageError: If it is another kind of key.
    """
    key = serialization.load_pem_public_key(data)
    if not isinstance(key, PublicKey):
        raise UsageError("this is not the public key of a client")
    return key


def write_key(path: Path, key: PrivateKey, passphrase: bytes | None) -> None:
    """Writes a private key.

    Args:
        path: The file.
        key: The key.
        passphrase: Encrypts the file, if there is one.
    """
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if passphrase:
        encryption = serialization.BestAvailableEncryption(passphrase)
    form = serialization.PrivateFormat.PKCS8
    write_file(path, key.private_bytes(serialization.Encoding.PEM, form, encryption))


def read_key(path: Path, passphrase: bytes | None = None, use: str = "here") -> PrivateKey:
    """Reads a private key.

    Args:
        path: The file.
        passphrase: The passphrase, if the file is encrypted.
        use: What the key is needed for, for the message if it is missing.

    Raises:
        UsageError: If the file is missing, readable by others, encrypted with another passphrase,
            or contains another kind of key.
    """
    if not path.is_file():
        raise UsageError(f"{path} is missing, but needed {use}: put it back there")
    check_private(path)
    data = path.read_bytes()
    used = passphrase if data.startswith(_ENCRYPTED) else None
    if data.startswith(_ENCRYPTED) and not passphrase:
        raise UsageError(f"{path} is encrypted: give --passphrase-file, or set CONSORT_PASSPHRASE")
    try:
        if b"BEGIN OPENSSH" in data:  # written by older versions
            key: Any = serialization.load_ssh_private_key(data, used)
        else:
            key = serialization.load_pem_private_key(data, used)
    except (ValueError, TypeError) as error:
        way_out = "the passphrase is wrong" if used else "the file is damaged"
        raise UsageError(f"{path} cannot be read: {way_out}") from error
    if not isinstance(key, PrivateKey):
        raise UsageError(f"{path} is not a key created by consort site")
    return key


def is_encrypted(path: Path) -> bool:
    """Whether a private key needs a passphrase; a file that is missing does not."""
    return path.is_file() and path.read_bytes().startswith(_ENCRYPTED)


def openssh_bytes(key: PrivateKey) -> bytes:
    """A private key in the form that Flower's nodes read, without encryption."""
    form = serialization.PrivateFormat.OpenSSH
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def check_private(path: Path) -> None:
    """Checks that only its owner has access to a file or folder.

    Raises:
        UsageError: If somebody else has.
    """
    if path.stat().st_mode & _OTHERS:
        mode = "700" if path.is_dir() else "600"
        raise UsageError(f"{path} is a secret that others can read: chmod {mode} {path}")
