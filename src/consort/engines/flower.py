"""Clients on other machines, reached through Flower."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from consort.core.messages import Call, Payload, Reply, common_keys
from consort.core.sealed import read_json, write_json
from consort.core.wire import decode, encode
from consort.engines.middleware import Absent, RefusedReply
from consort.engines.states import Stamp
from consort.errors import ClientFailed, Failure, Refused

Header = dict[str, Any]
Parts = dict[str, bytes]
_POLL = 0.1  # seconds between looks for answers
_LOOK = 1.0  # and for clients that are not connected
NOT_ADMITTED = "is no longer admitted"
_REMEMBERED = 100  # answers of a client, more than an algorithm asks for in two rounds


@dataclass(frozen=True)
class Arrival:
    """A reply, or the reason why it was lost on the way."""

    reply_to: str
    parts: Parts
    lost: str = ""


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
    tell: Callable[[str, str], Any] = lambda *_: None
    """Is told what each client is doing."""
    admitted: Callable[[str], bool] = lambda _: True
    """Whether a client may take part, now."""
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
            reply = reply_of(call.client, answer)
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
        unsent, asked = [client for client in letters if self.admitted(client)], dict[str, str]()
        answers: dict[str, Parts | ClientFailed] = {}
        lost: dict[str, str] = {}
        for client in letters:
            while client not in answers:
                unsent = self._send(unsent, letters, asked, end - time.monotonic())
                for arrival in self.post.pull(list(asked)) if asked else ():
                    sender = asked.pop(arrival.reply_to, None)
                    if sender is None:
                        continue
                    if arrival.lost:
                        lost[sender] = arrival.lost
                        self.tell(sender, f"lost: {arrival.lost}")
                        unsent.append(sender)
                    else:
                        answers[sender] = arrival.parts
                if client in answers:
                    break
                if not self.admitted(client):
                    answers[client] = Absent(client, NOT_ADMITTED)
                elif time.monotonic() > end:
                    answers[client] = self._too_late(client, lost)
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

    def _send(
        self,
        unsent: list[str],
        letters: Mapping[str, tuple[Header, Parts]],
        asked: dict[str, str],
        seconds: float,
    ) -> list[str]:
        """Sends to those who are connected; returns those who are not."""
        if not unsent or seconds <= 0 or time.monotonic() < self._look_again:
            return unsent
        online = self.post.online()
        ready = [client for client in unsent if self.nodes[client] in online]
        for client in unsent:
            self.tell(client, "working" if client in ready else "not connected")
        if ready:
            addressed = []
            for client in ready:
                header, parts = letters[client]
                header = header | {
                    "session": self.ledger.session,
                    "number": self.ledger.next(),
                    "seconds": seconds,
                    "known": bool(self.ledger.counted.get(client)),
                    "study": self.study,
                    "told": self.told.get(client),
                }
                addressed.append((self.nodes[client], {"header": _dump(header)} | parts))
            self.ledger.save()
            for client, number in zip(ready, self.post.push(addressed, seconds), strict=True):
                if number:
                    asked[number] = client
                else:
                    raise Failure(f"Flower did not take the message to {client}")
        waiting = [client for client in unsent if client not in ready]
        self._look_again = time.monotonic() + _LOOK if waiting else 0.0
        return waiting

    def _too_late(self, client: str, lost: Mapping[str, str]) -> ClientFailed:
        reason = f"did not answer within {self.deadline:g} seconds"
        return Absent(client, f"{reason} ({lost[client]})" if client in lost else reason)


def reply_of(client: str, answer: Parts | ClientFailed) -> Reply:
    """What a client's answer says; one that cannot be read is an error."""
    if isinstance(answer, ClientFailed):
        return Reply(client, error=answer)
    try:
        header = json.loads(answer["header"])
        if header["error"]:
            kind = Absent if header["late"] else ClientFailed
            return Reply(client, error=kind(client, str(header["error"])))
        content: Payload = dict(decode(answer["content"]))
        return Reply(client, content, None, float(header["seconds"]), int(header["flops"]))
    except (Refused, LookupError, ValueError, TypeError, OverflowError) as error:
        return Reply(client, error=RefusedReply(client, f"sent a damaged answer ({error})"))


def _dump(header: Header) -> bytes:
    return json.dumps(header, separators=(",", ":")).encode()
