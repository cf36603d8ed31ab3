"""Masks that cancel out in a sum, and the cryptography of secure aggregation.

Secrets come from the operating system, never from the seed of a run; they do not affect results,
because masks cancel exactly. The cryptography is that of two libraries: X25519, HKDF, AES-CTR and
ChaCha20-Poly1305 from `cryptography`, Shamir's secret sharing from `pycryptodome`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from consort.errors import Failure, UsageError

Numbers = NDArray[np.uint64]
"""Integers modulo 2^64."""
PLACES = 32
"""Binary places of a fixed-point number."""
SEED = 16
"""Bytes of the seed of a stream of masks, and of what is shared at a time."""
_NONCE, _TAG = 12, 16
LOCKED = _NONCE + SEED + 32 + _TAG
"""Bytes of an encrypted share of a seed and of a private key."""
_CHUNK = 1 << 13  # numbers that are masked at a time, so that they stay in the cache


def require() -> None:
    """Checks that the libraries are installed.

    Raises:
        UsageError: If one of them is missing.
    """
    try:
        import Crypto.Protocol.SecretSharing  # noqa: F401
        import cryptography.hazmat.primitives.ciphers  # noqa: F401
    except ImportError as error:
        raise UsageError(
            "[secure] needs cryptography and pycryptodome: pip install 'fedconsort[secure]'"
        ) from error


def new_private() -> bytes:
    """Creates a private key."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    return bytes(X25519PrivateKey.generate().private_bytes_raw())


def public_of(private: bytes) -> bytes:
    """The public key that belongs to the key `private`."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    return bytes(X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw())


def agreed(private: bytes, public: bytes, purpose: str, length: int) -> bytes:
    """Derives a secret that only the owners of two keys know, by Diffie-Hellman key agreement.

    Args:
        private: The own private key.
        public: The public key of the other.
        purpose: What the secret is for; different purposes give different secrets.
        length: The bytes of the secret.

    Returns:
        The secret.
    """
    from cryptography.hazmat.primitives.asymmetric import x25519
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    own = x25519.X25519PrivateKey.from_private_bytes(private)
    secret = own.exchange(x25519.X25519PublicKey.from_public_bytes(public))
    return bytes(HKDF(SHA256(), length, None, f"consort {purpose}".encode()).derive(secret))


def agreed_seed(private: bytes, public: bytes) -> bytes:
    """The seed of the masks of two clients, from one's `private` and the other's `public` key."""
    return agreed(private, public, "mask", SEED)


def locked(private: bytes, public: bytes, content: bytes, label: str) -> bytes:
    """Encrypts and authenticates a content for the owner of a public key.

    Args:
        private: The private key of the sender.
        public: The public key of the receiver.
        content: The content.
        label: What the content is; it is authenticated but not sent.

    Returns:
        The encrypted content.
    """
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    nonce = os.urandom(_NONCE)
    cipher = ChaCha20Poly1305(agreed(private, public, "share", 32))
    return nonce + bytes(cipher.encrypt(nonce, content, label.encode()))


def unlocked(private: bytes, public: bytes, content: bytes, label: str) -> bytes:
    """Decrypts what `locked` returned.

    Args:
        private: The private key of the receiver.
        public: The public key of the sender.
        content: The encrypted content.
        label: The label with which it was encrypted.

    Returns:
        The content.

    Raises:
        Failure: If the content was changed, or the keys or the label differ.
    """
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    cipher = ChaCha20Poly1305(agreed(private, public, "share", 32))
    try:
        return bytes(cipher.decrypt(content[:_NONCE], content[_NONCE:], label.encode()))
    except InvalidTag as error:
        raise Failure(f"a share ({label}) was changed in transit") from error


def shares_of(secret: bytes, needed: int, count: int) -> list[bytes]:
    """Splits a secret into shares, by Shamir's secret sharing.

    Args:
        secret: The secret.
        needed: How many shares reveal the secret; fewer reveal nothing.
        count: The number of shares.

    Returns:
        The shares.
    """
    from Crypto.Protocol.SecretSharing import Shamir

    shares = [b""] * count
    for start in range(0, len(secret), SEED):
        for number, share in Shamir.split(needed, count, secret[start : start + SEED], False):
            shares[number - 1] += share
    return shares


def secret_of(shares: Mapping[int, bytes]) -> bytes:
    """Reconstructs the secret from enough of its shares.

    Args:
        shares: The shares, by their position among all shares.

    Returns:
        The secret.
    """
    from Crypto.Protocol.SecretSharing import Shamir

    length = len(next(iter(shares.values())))
    parts = (slice(start, start + SEED) for start in range(0, length, SEED))
    return b"".join(
        Shamir.combine([(place + 1, share[part]) for place, share in shares.items()], False)
        for part in parts
    )


def add_mask(numbers: Numbers, seed: bytes, sign: int) -> None:
    """Adds a stream of pseudo-random numbers in place, or subtracts it.

    Args:
        numbers: The numbers to be changed.
        seed: The seed of the stream, which must not be used for another one.
        sign: 1 to add, -1 to subtract.
    """
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    # Every seed is used for one stream only, so the nonce can be constant.
    stream = Cipher(algorithms.AES(seed), modes.CTR(bytes(16))).encryptor()
    operation = np.add if sign > 0 else np.subtract
    zeros, buffer = bytes(8 * _CHUNK), bytearray(8 * _CHUNK + 16)
    mask = np.frombuffer(buffer, "<u8", _CHUNK)
    for start in range(0, len(numbers), _CHUNK):
        part = numbers[start : start + _CHUNK]
        stream.update_into(zeros, buffer)
        operation(part, mask[: len(part)], out=part)


def fixed_point(values: Tensor, clients: int) -> Numbers:
    """Converts numbers to fixed point.

    Args:
        values: The numbers.
        clients: The number of clients whose numbers are added up.

    Returns:
        The integers.

    Raises:
        Failure: If a number is not finite, or so large that the sum might overflow.
    """
    scaled = (values.to(torch.float64) * 2.0**PLACES).round()
    largest = float(scaled.abs().max()) if scaled.numel() else 0.0
    if not largest < 2.0**63 / clients:
        raise Failure(
            f"its answer has numbers that [secure] cannot add up: {largest / 2.0**PLACES:g} "
            f"(multiplied by its weight), where {2.0 ** (63 - PLACES) / clients:g} is the limit: "
            "lower the learning rate"
        )
    return scaled.to(torch.int64).numpy().view(np.uint64)


def floating_point(numbers: Numbers) -> Tensor:
    """Converts fixed-point `numbers` back: the inverse of `fixed_point`."""
    return torch.from_numpy(numbers.view(np.int64)).to(torch.float64) / 2.0**PLACES


def as_rows(items: Sequence[bytes]) -> Tensor:
    """Packs `items` of equal length into a tensor with one row each, for sending."""
    return torch.frombuffer(bytearray(b"".join(items)), dtype=torch.uint8).view(len(items), -1)


def as_bytes(row: Tensor) -> bytes:
    """The bytes in one `row` of what `as_rows` returned."""
    return row.contiguous().numpy().tobytes()
