"""Envelopes: every message is signed by its sender, and opened only by the receiver it is for.

Flower carries messages, but does not tell who wrote them: whoever knows the number of a message can
answer it. So the sender signs the session, the number of the message, both names and a hash of
every part. The receiver verifies that before anything else looks at the parts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Literal

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from consort.deployment.certificates import is_in_time, is_issued, read_certificate
from consort.deployment.credentials import ClientCredentials, ServerCredentials
from consort.deployment.keys import PrivateKey, PublicKey, read_public
from consort.engines.flower import Letter, Parts
from consort.errors import Refused

ENVELOPE = "envelope"
"""The part of a message that is its envelope."""
_SERVER = "server"
_HASH = ec.ECDSA(hashes.SHA256())
_LARGEST = 8 << 10  # bytes of an envelope
_MOST_PARTS = 16
_Name = Annotated[str, Field(max_length=64)]


class _Envelope(BaseModel):
    """What is written on an envelope."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    version: Literal[1]
    direction: Literal["question", "answer"]
    session: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    number: Annotated[int, Field(ge=1, lt=1 << 53)]
    sender: _Name
    receiver: _Name
    certificate: Annotated[str, Field(max_length=_LARGEST)] = ""
    """That of the server, which its clients do not have."""
    signature: Annotated[str, Field(pattern=r"^[0-9a-f]{2,400}$")] = "00"

    def signed(self, digests: Mapping[str, str]) -> bytes:
        """The bytes to sign, for parts with these digests."""
        address = [self.version, self.direction, self.session, self.number]
        names = [self.sender, self.receiver]
        content = json.dumps([*address, *names, sorted(digests.items())])
        return b"consort envelope\0" + content.encode()

    def written(self, key: PrivateKey, digests: Mapping[str, str]) -> bytes:
        """The envelope with its signature."""
        signature = key.sign(self.signed(digests), _HASH).hex()
        return self.model_copy(update={"signature": signature}).model_dump_json().encode()

    def is_signed(self, key: PublicKey, parts: Parts) -> bool:
        """Whether the owner of a key has signed this envelope for these parts."""
        try:
            key.verify(bytes.fromhex(self.signature), self.signed(_digests(parts)), _HASH)
        except (InvalidSignature, ValueError):
            return False
        return True


@dataclass(frozen=True)
class Question:
    """What an answer belongs to."""

    session: str
    number: int


@dataclass(frozen=True)
class ServerEnvelopes:
    """Seals the questions of a server and opens the answers of its clients.

    Args:
        key: The private key of the server.
        certificate: Its certificate, in PEM form.
        keys: The public keys of the clients, by name.
    """

    key: PrivateKey = field(repr=False)
    certificate: bytes
    keys: Mapping[str, bytes]

    @classmethod
    def of(cls, credentials: ServerCredentials, keys: Mapping[str, bytes]) -> ServerEnvelopes:
        """The envelopes of the server with these credentials."""
        certificate = (credentials.folder / "server.pem").read_bytes()
        return cls(credentials.private_key, certificate, keys)

    def seal(self, letters: Sequence[Letter]) -> list[Parts]:
        """Adds an envelope to each letter; a part that several letters share is hashed once.

        Args:
            letters: The receiver, the session, the number and the parts of each.
        """
        known: dict[int, str] = {}
        sealed = []
        for receiver, session, number, parts in letters:
            envelope = _Envelope(
                version=1,
                direction="question",
                session=session,
                number=number,
                sender=_SERVER,
                receiver=receiver,
                certificate=self.certificate.decode("ascii"),
            )
            for part in parts.values():
                if id(part) not in known:
                    known[id(part)] = _digest(part)
            digests = {name: known[id(part)] for name, part in parts.items()}
            sealed.append(parts | {ENVELOPE: envelope.written(self.key, digests)})
        return sealed

    def open(self, client: str, session: str, number: int, parts: Parts) -> Parts:
        """Takes an answer out of its envelope.

        Args:
            client: The client that was asked.
            session: The session of the question.
            number: Its number.
            parts: What has arrived.

        Raises:
            Refused: If this is not the answer of this client to this question.
        """
        return open_answer(self.keys.get(client), client, session, number, parts)


@dataclass(frozen=True)
class ClientEnvelopes:
    """Opens the questions of a server and seals the answers of a client.

    Args:
        name: The name of the client.
        key: Its private key.
        authority: The certificate of the authority that it trusts.
    """

    name: str
    key: PrivateKey = field(repr=False)
    authority: x509.Certificate

    @classmethod
    def of(cls, credentials: ClientCredentials) -> ClientEnvelopes:
        """The envelopes of the client with these credentials."""
        authority = read_certificate(credentials.authority)
        return cls(credentials.name, credentials.private_key, authority)

    def open(self, parts: Parts) -> tuple[Question, Parts]:
        """Takes a question out of its envelope.

        Args:
            parts: What has arrived.

        Returns:
            What an answer must belong to, and the parts of the question.

        Raises:
            Refused: If this is not a question of the server to this client.
        """
        envelope, rest = _taken_out(parts, "question")
        key = _server_key(envelope.certificate, self.authority)
        if key is None or not envelope.is_signed(key, rest):
            raise Refused("a message is not signed by the server of this federation")
        if (envelope.sender, envelope.receiver) != (_SERVER, self.name):
            raise Refused(f"a message is for {envelope.receiver}")
        return Question(envelope.session, envelope.number), rest

    def seal(self, question: Question, parts: Parts) -> Parts:
        """Adds an envelope to an answer.

        Args:
            question: What it belongs to, from `open`.
            parts: The parts of the answer.
        """
        envelope = _Envelope(
            version=1,
            direction="answer",
            session=question.session,
            number=question.number,
            sender=self.name,
            receiver=_SERVER,
        )
        return parts | {ENVELOPE: envelope.written(self.key, _digests(parts))}


def open_answer(key: bytes | None, client: str, session: str, number: int, parts: Parts) -> Parts:
    """Takes an answer out of its envelope, as `ServerEnvelopes.open` does.

    Args:
        key: The public key of the client; without one, nothing is opened.
        client: The client that was asked.
        session: The session of the question.
        number: Its number.
        parts: What has arrived.

    Raises:
        Refused: If this is not the answer of this client to this question.
    """
    envelope, rest = _taken_out(parts, "answer")
    if key is None or not envelope.is_signed(read_public(key), rest):
        raise Refused(f"an answer is not signed by {client}")
    if (envelope.sender, envelope.receiver) != (client, _SERVER):
        raise Refused(f"an answer of {client} has the name of {envelope.sender!r}")
    if (envelope.session, envelope.number) != (session, number):
        raise Refused(f"an answer of {client} belongs to another question")
    return rest


def claimed(parts: Parts, direction: str) -> tuple[str, Question]:
    """Who is said to have sent a message, and in which place; nothing of that is verified.

    Args:
        parts: The message.
        direction: `question` or `answer`.

    Raises:
        Refused: If there is no valid envelope.
    """
    envelope, _ = _taken_out(parts, direction)
    return envelope.sender, Question(envelope.session, envelope.number)


def _taken_out(parts: Parts, direction: str) -> tuple[_Envelope, Parts]:
    """The envelope, of which nothing is verified yet, and the parts in it."""
    written = parts.get(ENVELOPE, b"")
    if not 0 < len(written) <= _LARGEST or len(parts) > _MOST_PARTS:
        raise Refused("a message has no valid envelope")
    try:
        envelope = _Envelope.model_validate_json(written)
    except ValidationError as error:
        raise Refused("a message has no valid envelope") from error
    if envelope.direction != direction:
        raise Refused(f"a message is not a {direction}")
    return envelope, {name: part for name, part in parts.items() if name != ENVELOPE}


@lru_cache(maxsize=4)
def _server_certificate(pem: str, authority: x509.Certificate) -> x509.Certificate | None:
    try:
        certificate = x509.load_pem_x509_certificate(pem.encode())
    except ValueError:
        return None
    return certificate if is_issued(certificate, authority, server=True) else None


def _server_key(pem: str, authority: x509.Certificate) -> PublicKey | None:
    """The key in a certificate of the server, if the authority has issued it and it is in time."""
    certificate = _server_certificate(pem, authority)
    if certificate is None or not is_in_time(certificate):
        return None
    key = certificate.public_key()
    return key if isinstance(key, PublicKey) else None


def _digests(parts: Parts) -> dict[str, str]:
    return {name: _digest(part) for name, part in parts.items()}


def _digest(part: bytes) -> str:
    return hashlib.sha256(part).hexdigest()
