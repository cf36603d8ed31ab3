"""Numbers that hide others and vanish from their sum: the parts of secure aggregation.

Every secret comes from the operating system and never from a seed; none of them is in a result,
because masks cancel exactly. All cryptography is that of two libraries: X25519, HKDF, AES-CTR and
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
"""Whole numbers modulo 2^64."""
PLACES = 32
"""Binary places of a fixed-point number."""
SEED = 16
"""Bytes of what a stream of masks grows from, and of what is shared at a time."""
_NONCE, _TAG = 12, 16
LOCKED = _NONCE + SEED + 32 + _TAG
"""Bytes of a locked share of a seed and of a private key."""
_CHUNK = 1 << 13  # numbers that are masked at a time, so that they stay in the cache


def require() -> None:
    """Refuses a machine without the libraries."""
    try:
        import Crypto.Protocol.SecretSharing  # noqa: F401
        import cryptography.hazmat.primitives.ciphers  # noqa: F401
    except ImportError as error:
        raise UsageError(
            "[secure] needs cryptography and pycryptodome: pip install 'fedconsort[secure]'"
        ) from error


def new_private() -> bytes:
    """A private key."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    return bytes(X25519PrivateKey.generate().private_bytes_raw())


def public_of(private: bytes) -> bytes:
    """The public half of a key."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    return bytes(X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw())


def agreed(private: bytes, public: bytes, purpose: str, length: int) -> bytes:
    """What two know who have each other's public keys, and nobody else."""
    from cryptography.hazmat.primitives.asymmetric import x25519
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    own = x25519.X25519PrivateKey.from_private_bytes(private)
    secret = own.exchange(x25519.X25519PublicKey.from_public_bytes(public))
    return bytes(HKDF(SHA256(), length, None, f"consort {purpose}".encode()).derive(secret))


def agreed_seed(private: bytes, public: bytes) -> bytes:
    """What the masks of a pair of clients grow from."""
    return agreed(private, public, "mask", SEED)


def locked(private: bytes, public: bytes, content: bytes, label: str) -> bytes:
    """A content that only the owner of a public key can read, from whom it is under which label."""
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    nonce = os.urandom(_NONCE)
    cipher = ChaCha20Poly1305(agreed(private, public, "share", 32))
    return nonce + bytes(cipher.encrypt(nonce, content, label.encode()))


def unlocked(private: bytes, public: bytes, content: bytes, label: str) -> bytes:
    """The inverse of `locked`; what was changed on its way is refused."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    cipher = ChaCha20Poly1305(agreed(private, public, "share", 32))
    try:
        return bytes(cipher.decrypt(content[:_NONCE], content[_NONCE:], label.encode()))
    except InvalidTag as error:
        raise Failure(f"a share ({label}) was damaged on its way") from error


def shares_of(secret: bytes, needed: int, count: int) -> list[bytes]:
    """So many shares, `needed` of which tell the secret and fewer nothing at all."""
    from Crypto.Protocol.SecretSharing import Shamir

    shares = [b""] * count
    for start in range(0, len(secret), SEED):
        for number, share in Shamir.split(needed, count, secret[start : start + SEED], False):
            shares[number - 1] += share
    return shares


def secret_of(shares: Mapping[int, bytes]) -> bytes:
    """The secret of these shares, each under its place among all."""
    from Crypto.Protocol.SecretSharing import Shamir

    length = len(next(iter(shares.values())))
    parts = (slice(start, start + SEED) for start in range(0, length, SEED))
    return b"".join(
        Shamir.combine([(place + 1, share[part]) for place, share in shares.items()], False)
        for part in parts
    )


def add_mask(numbers: Numbers, seed: bytes, sign: int) -> None:
    """Adds a stream of random numbers to these, or takes it away again."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    # Every seed is used for one stream only, so there is no need for another nonce.
    stream = Cipher(algorithms.AES(seed), modes.CTR(bytes(16))).encryptor()
    operation = np.add if sign > 0 else np.subtract
    zeros, buffer = bytes(8 * _CHUNK), bytearray(8 * _CHUNK + 16)
    mask = np.frombuffer(buffer, "<u8", _CHUNK)
    for start in range(0, len(numbers), _CHUNK):
        part = numbers[start : start + _CHUNK]
        stream.update_into(zeros, buffer)
        operation(part, mask[: len(part)], out=part)


def fixed_point(values: Tensor, clients: int) -> Numbers:
    """Numbers as whole ones; refuses those whose sum over so many clients might not fit."""
    scaled = (values.to(torch.float64) * 2.0**PLACES).round()
    largest = float(scaled.abs().max()) if scaled.numel() else 0.0
    if not largest < 2.0**63 / clients:
        raise Failure(
            f"its answer holds numbers that [secure] cannot add up: {largest / 2.0**PLACES:g} "
            f"times its weight, where {2.0 ** (63 - PLACES) / clients:g} is the limit"
        )
    return scaled.to(torch.int64).numpy().view(np.uint64)


def floating_point(numbers: Numbers) -> Tensor:
    """The inverse of `fixed_point`."""
    return torch.from_numpy(numbers.view(np.int64)).to(torch.float64) / 2.0**PLACES


def as_rows(items: Sequence[bytes]) -> Tensor:
    """Equally long bytes, as they are sent."""
    return torch.frombuffer(bytearray(b"".join(items)), dtype=torch.uint8).view(len(items), -1)


def as_bytes(row: Tensor) -> bytes:
    """One of them."""
    return row.contiguous().numpy().tobytes()
