"""A client of a federation: joins, answers, and comes back by itself."""

from __future__ import annotations

import fcntl
import signal
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from consort.core.validation import Table, checked
from consort.deployment.credentials import ClientCredentials
from consort.deployment.link.runtime import ENDED
from consort.deployment.link.supernode import SuperNode
from consort.deployment.participant import Participant
from consort.errors import Failure, UsageError
from consort.experiment.recipe import Group

_PAUSE = 5.0  # seconds before the next attempt to join
_SLOW = 20.0  # seconds after which it says that it cannot join


def read_brings(folder: Path, model: str | None, tasks: list[str]) -> Table:
    """What a client brings, from its own `client.toml` and the command."""
    path = folder / "client.toml"
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UsageError(
            f"{path} is missing: say there what this client brings, such as "
            '[data] with name = "cifar10"'
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not valid TOML: {error}") from error
    if model:
        table["model"] = {"name": model}
    if tasks:
        table["tasks"] = tasks
    for key in ("name", "count"):
        if key in table:
            raise UsageError(f"{path}: unknown key {key}")
    checked(Group, {"name": "client", "count": 1} | table, str(path))
    if "data" not in table:
        raise UsageError(f'{path}: say which data it brings: [data] with name = "cifar10"')
    return table


def take_part(
    server: str, credentials: ClientCredentials, participant: Participant, say: Callable[[str], Any]
) -> None:
    """Answers the server's calls until it is interrupted."""
    folder = participant.folder
    folder.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, _interrupt)
    with ExitStack() as stack:
        stack.enter_context(_only_client(folder))
        node = SuperNode(server, credentials.key, credentials.authority, folder)
        stack.callback(node.close)
        connection = _Connection(node, server, say)
        while True:
            connection.keep()
            letter = node.next_letter()
            if letter is None:
                continue
            answer = participant.answer(letter.parts)
            try:
                letter.answer(answer)
            except (Failure, *ENDED) as error:
                say(f"the answer could not be sent ({error}); the server will ask again")
                node.close()  # it would wait for the answer for ever


class _Connection:
    """Starts the node again whenever it ends, and says what is the matter."""

    def __init__(self, node: SuperNode, server: str, say: Callable[[str], Any]) -> None:
        self.node, self.server, self.say = node, server, say
        self.started = 0.0
        self.joined = False
        self.said = ""

    def keep(self) -> None:
        if self.node.alive:
            self._observe()
            return
        if self.node.process is not None:
            self._tell(f"{self.node.why_not()}; trying again")
            time.sleep(_PAUSE)
        self.node.start()
        self.started, self.joined = time.monotonic(), False

    def _observe(self) -> None:
        if self.joined:
            return
        if self.node.connected:
            self.joined = True
            self._tell(f"connected to {self.server}")
        elif time.monotonic() - self.started > _SLOW:
            self._tell(f"cannot reach {self.server} yet; trying on")

    def _tell(self, text: str) -> None:
        if text != self.said:
            self.said = text
            self.say(text)


def _interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    raise KeyboardInterrupt


@contextmanager
def _only_client(folder: Path) -> Iterator[None]:
    """Two processes must not be the same client."""
    with (folder / "client.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UsageError(f"another process is this client already ({folder})") from error
        yield
