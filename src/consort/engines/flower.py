"""Clients on other machines, reached through Flower."""

from __future__ import annotations

import json
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from consort.core.limits import MESSAGE, Limits
from consort.core.messages import Call, Reply, common_keys
from consort.core.sealed import read_json, write_json
from consort.core.wire import decode, encode
from consort.engines.answer_header import read_answer_header
from consort.engines.middleware import Absent, RefusedReply
from consort.engines.states import Stamp
from consort.errors import ClientFailed, Failure, Refused

Header = dict[str, Any]
Parts = dict[str, bytes]
Letter = tuple[str, str, int, Parts]
"""The receiver, the session, the number and the parts of a message."""
_POLL = 0.1  # seconds between looks for answers
_LOOK = 1.0  # and for clients that are not connected
NOT_ADMITTED = "is no longer admitted"
_FORGERIES = 3  # answers that are not signed by the client, before it is given up
_REMEMBERED = 100  # answers of a client, more than an algorithm asks for in two rounds


@dataclass(frozen=True)
class Arrival:
    """A reply, or the reason why it was lost on the way, or why it is not accepted."""

    reply_to: str
    parts: Parts
    lost: str = ""
    refused: str = ""


class Post(Protocol):
    """What the engine needs of Flower: see `consort.deployment.link.grid`."""

    def online(self) -> set[int]:
        """The nodes that are connected now."""
        ...

    def push(self, letters: Sequence[tuple[int, Parts]], seconds: float) -> list[str]:
        """Sends messages; returns the number of each."""
        ...

    def pull(self, ids: Iterable[str]) -> Sequence[Arrival]:
        """The replies that came in."""
        ...


class Envelopes(Protocol):
    """Who wrote a message: see `consort.deployment.envelope`."""

    def seal(self, letters: Sequence[Letter]) -> list[Parts]:
        """Signs letters; returns the parts to send."""
        ...

    def open(self, client: str, session: str, number: int, parts: Parts) -> Parts:
        """The parts of an answer; refuses one that is not by this client to this question."""
        ...


class NoEnvelopes:
    """Messages as they are, for clients in the same process."""

    def seal(self, letters: Sequence[Letter]) -> list[Parts]:
        """The parts as they are."""
        return [parts for *_, parts in letters]

    def open(self, client: str, session: str, number: int, parts: Parts) -> Parts:  # noqa: ARG002
        """The parts as they are."""
        return parts


@dataclass
class Ledger:
    """What the server remembers of its exchanges, on disk: a client may be behind or ahead of it.

    `session` is the name of the run for its clients. `counted` is when the last answers of each
    client that counted were asked for; the newest goes with every call, so that a client forgets
    what it did for an answer that came too late. `members` is what each client told of itself when
    the run began.
    """

    path: Path
    session: str
    number: int = 0
    counted: dict[str, list[Stamp]] = field(default_factory=dict)
    members: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def open(cls, path: Path) -> Ledger:
        """Where it was left, or a new one.

        Raises:
            Failure: If the file is damaged.
        """
        if not path.exists():
            return cls(path, secrets.token_hex(16))
        written, _ = read_json(path)
        counted = {
            client: [(stamp[0], stamp[1]) for stamp in stamps]
            for client, stamps in written["counted"].items()
        }
        return cls(path, written["session"], written["number"], counted, written.get("members", {}))

    def count(self, client: str, stamp: Stamp) -> None:
        """An answer counts."""
        self.counted[client] = [*self.counted.get(client, []), stamp][-_REMEMBERED:]

    def last_counted(self, client: str, before: Stamp) -> Stamp | None:
        """The newest answer before a time; a later one is of a round that is now run again."""
        kept = [stamp for stamp in self.counted.get(client, []) if stamp < before]
        self.counted[client] = kept
        return max(kept, default=None)

    def next(self) -> int:
        """A number that no message had before."""
        self.number += 1
        return self.number

    def save(self) -> None:
        """Writes it down."""
        table = {
            "session": self.session,
            "number": self.number,
            "counted": self.counted,
            "members": self.members,
        }
        write_json(self.path, table)


@dataclass
class Flower:
    """Sends a call to each client's node and waits for the answers, up to a deadline.

    While time is left, a call is sent again to a client that was cut off and came back. Who does
    not answer in time is absent from the exchange; an answer after that counts for nothing. Nobody
    waits for a client that is no longer admitted.
    """

    post: Post
    nodes: Mapping[str, int]
    study: Mapping[str, Any]
    """Goes with every message: what the clients must agree with."""
    ledger: Ledger
    deadline: float
    told: Mapping[str, str] = field(default_factory=dict)
    """What each client said of itself when the run began, as a digest."""
    companion: Mapping[str, Any] | None = None
    envelopes: Envelopes = field(default_factory=NoEnvelopes)
    tell: Callable[[str, str], Any] = lambda *_: None
    """Is told what each client is doing."""
    admitted: Callable[[str], bool] = lambda _: True
    """Whether a client may take part, now."""
    limits: Callable[[Call], Limits] = lambda _: MESSAGE
    """How large the answer to a call may be: see `Answers.limits`."""
    _look_again: float = field(default=0.0, init=False)

    def deliver(self, calls: Sequence[Call]) -> Iterator[Reply]:
        """Yields replies in the order of the calls, as soon as they are there."""
        common = common_keys(calls)
        shared = encode({key: calls[0].payload[key] for key in common}) if calls else b""
        letters = {}
        for call in calls:
            own = {key: value for key, value in call.payload.items() if key not in common}
            letters[call.client] = (self._header(call), {"shared": shared, "own": encode(own)})
        answers = self.exchange(letters)
        for call, (_, answer) in zip(calls, answers, strict=True):
            arrived = not isinstance(answer, ClientFailed)
            reply = reply_of(call.client, answer, self.limits(call) if arrived else MESSAGE)
            if reply.error is None and not call.evaluation:
                self.ledger.count(call.client, call.stamp)
            self.tell(call.client, f"failed: {reply.error.reason}" if reply.error else "answered")
            yield reply
        self.ledger.save()

    def exchange(
        self, letters: Mapping[str, tuple[Header, Parts]]
    ) -> Iterator[tuple[str, Parts | ClientFailed]]:
        """Sends each client its letter; yields what comes back, in the order of the letters."""
        end = time.monotonic() + self.deadline
        exchange = _Exchange(letters)
        answers = exchange.answers
        for client in letters:
            while client not in answers:
                self._follow_admissions(exchange)
                self._send(exchange, end - time.monotonic())
                self._receive(exchange)
                if client in answers:
                    break
                if not self.admitted(client):
                    answers[client] = Absent(client, NOT_ADMITTED)
                elif time.monotonic() > end:
                    answers[client] = self._too_late(client, exchange.lost)
                else:
                    time.sleep(_POLL)
            yield client, answers[client]

    def close(self) -> None:
        """Clients stay connected, and the post belongs to whoever opened it."""
        self.ledger.save()

    def _header(self, call: Call) -> Header:
        return {
            "kind": "call",
            "call": call.header,
            "counted": self.ledger.last_counted(call.client, call.before),
            "companion": self.companion,
        }

    def _follow_admissions(self, exchange: _Exchange) -> None:
        """Asks nobody who is not admitted, and everybody who is admitted again.

        A client whose admission was taken back may never have seen the message, or its answer was
        refused; if it is admitted again, it is asked anew.
        """
        for id_, (client, _) in list(exchange.asked.items()):
            if not self.admitted(client):
                del exchange.asked[id_]
        asked = {client for client, _ in exchange.asked.values()}
        exchange.unsent = [
            client
            for client in exchange.letters
            if client not in asked and client not in exchange.answers and self.admitted(client)
        ]

    def _send(self, exchange: _Exchange, seconds: float) -> None:
        """Sends to those who are connected."""
        unsent = exchange.unsent
        if not unsent or seconds <= 0 or time.monotonic() < self._look_again:
            return
        online = self.post.online()
        ready = [client for client in unsent if self.nodes[client] in online]
        for client in unsent:
            self.tell(client, "working" if client in ready else "not connected")
        if ready:
            letters = [self._letter(client, *exchange.letters[client], seconds) for client in ready]
            self.ledger.save()
            sealed = self.envelopes.seal(letters)
            nodes = [self.nodes[client] for client in ready]
            ids = self.post.push(list(zip(nodes, sealed, strict=True)), seconds)
            for id_, (client, _, number, _) in zip(ids, letters, strict=True):
                if not id_:
                    raise Failure(f"Flower did not take the message to {client}")
                exchange.asked[id_] = (client, number)
        exchange.unsent = [client for client in unsent if client not in ready]
        self._look_again = time.monotonic() + _LOOK if exchange.unsent else 0.0

    def _letter(self, client: str, header: Header, parts: Parts, seconds: float) -> Letter:
        session, number = self.ledger.session, self.ledger.next()
        header = header | {
            "session": session,
            "number": number,
            "seconds": seconds,
            "known": bool(self.ledger.counted.get(client)),
            "study": self.study,
            "told": self.told.get(client),
        }
        return client, session, number, {"header": _dump(header)} | parts

    def _receive(self, exchange: _Exchange) -> None:
        """Takes in what has arrived; a client whose answer was lost or forged is asked again."""
        asked = exchange.asked
        for arrival in self.post.pull(list(asked)) if asked else ():
            if arrival.reply_to not in asked:
                continue
            client, number = asked.pop(arrival.reply_to)
            if arrival.refused:
                exchange.answers[client] = RefusedReply(client, arrival.refused)
                continue
            lost = arrival.lost
            try:
                if not lost:
                    exchange.answers[client] = self.envelopes.open(
                        client, self.ledger.session, number, arrival.parts
                    )
                    continue
            except Refused as error:
                lost = str(error)
                exchange.forged[client] += 1
                if exchange.forged[client] >= _FORGERIES:
                    exchange.answers[client] = RefusedReply(client, lost)
                    continue
            exchange.lost[client] = lost
            self.tell(client, f"lost: {lost}")
            exchange.unsent.append(client)

    def _too_late(self, client: str, lost: Mapping[str, str]) -> ClientFailed:
        reason = f"did not answer within {self.deadline:g} seconds"
        return Absent(client, f"{reason} ({lost[client]})" if client in lost else reason)


@dataclass
class _Exchange:
    """What has become of the letters of one exchange."""

    letters: Mapping[str, tuple[Header, Parts]]
    unsent: list[str] = field(default_factory=list)
    asked: dict[str, tuple[str, int]] = field(default_factory=dict)
    """The client and the number of each message that was sent, by its id."""
    answers: dict[str, Parts | ClientFailed] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)
    forged: Counter[str] = field(default_factory=Counter)


def reply_of(client: str, answer: Parts | ClientFailed, limits: Limits = MESSAGE) -> Reply:
    """What a client's answer says; one that cannot be read, or is too large, is an error.

    Args:
        client: The name of the client.
        answer: The parts of its answer, or why there is none.
        limits: How large the answer may be, which is checked before it is decoded.
    """
    if isinstance(answer, ClientFailed):
        return Reply(client, error=answer)
    try:
        if answer.keys() != {"header", "content"}:
            raise Refused("its answer does not have a header and a content")
        header = read_answer_header(answer["header"])
        if header.error:
            kind = Absent if header.late else ClientFailed
            return Reply(client, error=kind(client, header.error))
        content = decode(answer["content"], limits=limits)
        if not isinstance(content, dict):
            raise Refused("its answer is not a dict")
        return Reply(client, content, None, header.seconds, header.flops)
    except Refused as refusal:
        return Reply(client, error=RefusedReply(client, f"sent a damaged answer ({refusal})"))


def _dump(header: Header) -> bytes:
    return json.dumps(header, separators=(",", ":")).encode()
