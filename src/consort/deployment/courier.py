"""Clients without any connection: messages to them are files that somebody carries.

In the folder of a run, `by-hand/NAME/question` is the message that waits for a client and
`by-hand/NAME/answer` the answer that was brought back. Both are in envelopes as on a network, so
nobody on the way can change them, and an answer fits one question only.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from consort.core.files import write_file
from consort.core.limits import Limits
from consort.core.registry import check_name
from consort.core.wire import decode, encode
from consort.deployment.envelope import claimed, open_answer
from consort.engines.flower import Arrival, Parts
from consort.errors import Refused, UsageError

_FOLDER = "by-hand"
_PREFIX = "by-hand "
_LARGEST = 4 << 30
_HEADER, _PARTS = 1 << 16, 16


class Courier:
    """Writes questions into files and takes answers from files, for clients reached by hand.

    Args:
        run: The folder of the run.
        keys: The public keys of these clients, by name.
        report: Is told that a message waits.
    """

    def __init__(
        self, run: Path, keys: Mapping[str, bytes], report: Callable[[str], Any] = lambda _: None
    ) -> None:
        self.run, self.report = run, report
        self.nodes = {name: -number for number, name in enumerate(keys, 1)}
        """Numbers that no node of Flower has."""
        self.largest_answer = _LARGEST
        self._names = {node: name for name, node in self.nodes.items()}
        self._asked: dict[str, str] = {}
        for name, key in keys.items():
            write_file(_place(run, name) / "key.pem", key)

    def online(self) -> set[int]:
        """All of them: a message can be written at any time."""
        return set(self._names)

    def push(self, letters: Sequence[tuple[int, Parts]], seconds: float) -> list[str]:  # noqa: ARG002
        """Writes the message that waits for each client, in place of an older one.

        Args:
            letters: Nodes, each with the parts of its message.
            seconds: How long the messages are valid.

        Returns:
            The id of each message.
        """
        ids = []
        for node, parts in letters:
            name = self._names[node]
            place = _place(self.run, name)
            (place / "answer").unlink(missing_ok=True)
            write_parts(place / "question", parts)
            ids.append(_PREFIX + secrets.token_hex(8))
            self._asked[ids[-1]] = name
            self.report(f"a message waits for {name}: consort site pack {self.run} {name} FILE")
        return ids

    def pull(self, ids: Iterable[str]) -> list[Arrival]:
        """The answers that were brought back.

        Args:
            ids: The ids of the messages whose answers are wanted; others are ignored.
        """
        arrivals = []
        for id_ in ids:
            place = _place(self.run, self._asked.get(id_, "nobody"))
            if not (place / "answer").exists():
                continue
            try:
                arrivals.append(Arrival(id_, read_parts(place / "answer", self.largest_answer)))
            except Refused as error:
                arrivals.append(Arrival(id_, {}, refused=str(error)))
            for name in ("answer", "question"):
                (place / name).unlink(missing_ok=True)
        return arrivals


def is_by_hand(id_: str) -> bool:
    """Whether a message with this id was given to a `Courier`."""
    return id_.startswith(_PREFIX)


def waiting_for(run: Path, client: str) -> bytes:
    """The message that waits for a client, as a file to carry.

    Args:
        run: The folder of the run.
        client: The name of the client.

    Raises:
        UsageError: If the client is not reached by hand in this run, or no message waits.
    """
    check_name(client, ascii_only=True)
    place = _place(run, client)
    if not place.is_dir():
        raise UsageError(
            f"{client} is not reached by hand: start consort server --by-hand {client}"
        )
    if not (place / "question").exists():
        raise UsageError(f"no message waits for {client}: see consort status {run}")
    return (place / "question").read_bytes()


def bring_back(run: Path, file: Path) -> str:
    """Hands an answer that was carried to the server of a run.

    Args:
        run: The folder of the run.
        file: The file that the client made.

    Returns:
        The name of the client.

    Raises:
        Refused: If it is not the answer of one of its clients to the message that waits.
        UsageError: If no message waits for the client.
    """
    parts = read_parts(file)
    client, _ = claimed(parts, "answer")
    waiting_for(run, client)
    place = _place(run, client)
    _, question = claimed(read_parts(place / "question"), "question")
    key = (place / "key.pem").read_bytes()
    open_answer(key, client, question.session, question.number, parts)
    write_parts(place / "answer", parts)
    return client


def write_parts(path: Path, parts: Parts) -> None:
    """Writes the parts of a message into one file."""
    written = {
        name: torch.from_numpy(np.frombuffer(part, np.uint8).copy()) for name, part in parts.items()
    }
    write_file(path, encode(written))


def read_parts(path: Path, largest: int = _LARGEST) -> Parts:
    """Reads the parts of a message from a file of unknown origin.

    Args:
        path: The file.
        largest: How many bytes it may have.

    Raises:
        Refused: If it is too large or no such file.
    """
    if not path.is_file() or path.stat().st_size > largest:
        raise Refused(f"{path} is not a file of at most {largest} bytes")
    limits = Limits(bytes=largest, header=_HEADER, tensors=_PARTS, items=10 * _PARTS)
    try:
        found = decode(path.read_bytes(), limits=limits)
    except Refused as error:
        raise Refused(f"{path} is not a file made by consort site pack ({error})") from error
    if not isinstance(found, dict) or not all(_is_part(part) for part in found.values()):
        raise Refused(f"{path} is not a file made by consort site pack")
    return {name: part.numpy().tobytes() for name, part in found.items()}


def _is_part(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype == torch.uint8 and value.dim() == 1


def _place(run: Path, client: str) -> Path:
    return run / _FOLDER / client
