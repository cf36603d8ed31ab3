"""Runs a client of a federation: connects, answers calls, and reconnects by itself."""

from __future__ import annotations

import signal
import time
import tomllib
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Any

from consort.core.files import held
from consort.core.validation import Table, checked
from consort.deployment.credentials import ClientCredentials
from consort.deployment.envelope import ClientEnvelopes
from consort.deployment.keys import openssh_bytes
from consort.deployment.link.runtime import RUN_ENDED
from consort.deployment.link.supernode import SuperNode
from consort.deployment.logs import log
from consort.deployment.participant import Participant
from consort.engines.flower import Parts
from consort.errors import Failure, Refused, UsageError
from consort.experiment.recipe import Group

_PAUSE = 5.0  # seconds before the next attempt to join
_SLOW = 20.0  # seconds after which the client reports that it cannot connect


def read_brings(folder: Path, model: str | None, tasks: list[str]) -> Table:
    """Reads a client's data, model and tasks from its `client.toml`.

    Args:
        folder: The folder with the file.
        model: A model to use instead.
        tasks: Tasks to use instead.

    Returns:
        A table like a group of a recipe.

    Raises:
        UsageError: If the file is missing or not valid.
    """
    path = folder / "client.toml"
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UsageError(
            f"{path} is missing: create it and describe the client's data in it, for example "
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
        raise UsageError(f'{path} names no data: add a table such as [data] with name = "cifar10"')
    return table


def take_part(
    server: str, credentials: ClientCredentials, participant: Participant, say: Callable[[str], Any]
) -> None:
    """Connects to a server and answers its calls until interrupted.

    Args:
        server: HOST:PORT of the server.
        credentials: The client's credentials.
        participant: Answers the calls.
        say: Prints a line for the user.

    Raises:
        UsageError: If another process is this client already.
        KeyboardInterrupt: When the process is interrupted or terminated.
    """
    folder = participant.folder
    signal.signal(signal.SIGTERM, _interrupt)
    with ExitStack() as stack:
        stack.enter_context(held(folder, "client.lock", "each client is one process"))
        envelopes = ClientEnvelopes.of(credentials)
        key = openssh_bytes(credentials.private_key)
        node = SuperNode(server, key, credentials.authority, folder)
        stack.callback(node.close)
        connection = _Connection(node, server, say)
        while True:
            connection.keep()
            message = node.next_message()
            if message is None:
                continue
            try:
                message.answer(answer_to(message.parts, envelopes, participant))
            except (Failure, *RUN_ENDED) as error:
                say(f"the answer could not be sent ({error}); the server will ask again")
                node.close()  # the node would wait for the answer forever


def answer_to(parts: Parts, envelopes: ClientEnvelopes, participant: Participant) -> Parts:
    """The answer of a client to a message in an envelope, in another one.

    Args:
        parts: The message.
        envelopes: Those of the client.
        participant: Answers what the server has signed; nothing else gets to it.

    Returns:
        The answer; empty if the message was refused, since there is nobody to answer to.
    """
    try:
        question, opened = envelopes.open(parts)
    except Refused as error:
        participant.say(f"refused: {error}")
        return {}
    return envelopes.seal(question, participant.answer(opened))


class _Connection:
    """Restarts the node whenever it ends, and tells the user why."""

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
            self._tell("ended", f"{self.node.why_not()}; trying again")
            time.sleep(_PAUSE)
        self.node.start()
        self.started, self.joined = time.monotonic(), False

    def _observe(self) -> None:
        if self.joined:
            return
        if self.node.connected:
            self.joined = True
            self._tell("connected", f"connected to {self.server}")
        elif time.monotonic() - self.started > _SLOW:
            self._tell("unreachable", f"cannot reach {self.server} yet; still trying")

    def _tell(self, state: str, text: str) -> None:
        if text != self.said:
            self.said = text
            self.say(text)
            log("connection", state=state)


def _interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    raise KeyboardInterrupt
