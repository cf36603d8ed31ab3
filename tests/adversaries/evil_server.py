"""A server that is evil: it says to a client what no honest server says.

It talks to a real `Participant` as the engine does, message by message, but writes every part of a
message itself.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from consort.core.wire import decode, encode
from consort.deployment.participant import Participant
from consort.deployment.policy import Policy
from consort.deployment.study import Study, digest
from consort.experiment.loading import load_recipe
from consort.experiment.recipe import Recipe
from consort.experiment.tables import merged
from tests.institutions import STUDY, holdings

CLIENT = "a-0"
SECRET = "THE-SECRET-OF-THE-CLIENT"


def honest_recipe(folder: Path, more: str = "[algorithms.fedavg]\n") -> Recipe:
    """The recipe that the client has seen, and would take part in."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "study.toml").write_text(STUDY + more)
    return load_recipe(folder / "study.toml")


@dataclass
class EvilServer:
    """Sends whatever it likes to one client."""

    client: Participant
    recipe: Recipe
    algorithm: str = "fedavg"
    session: str = field(default_factory=lambda: secrets.token_hex(16))
    number: int = 0

    @property
    def study(self) -> dict[str, Any]:
        """The honest proposal."""
        return Study.of(self.recipe, self.algorithm, 0).table

    def proposing(self, changes: Mapping[str, Any], **more: Any) -> dict[str, Any]:
        """Another proposal, with a digest that fits it."""
        table = self.study | {"recipe": merged(self.study["recipe"], changes)} | more
        return table | {"digest": forged(table)}

    def header(self, kind: str, /, **changes: Any) -> dict[str, Any]:
        """The header of a message, honest but for the changes."""
        self.number += 1
        usual: dict[str, Any] = {
            "kind": kind,
            "session": self.session,
            "number": self.number,
            "seconds": 60.0,
            "known": False,
            "study": self.study,
            "told": None,
        }
        if kind == "initial":
            usual |= {"companion": None, "draw": 0}
        if kind == "call":
            usual |= {"companion": None, "counted": None, "call": [CLIENT, "train", 1, 0, 0]}
        return usual | changes

    def send(self, header: Any, **parts: bytes) -> Answer:
        """Sends a header, or bytes in its place, with parts of payloads beside it."""
        data = header if isinstance(header, bytes) else json.dumps(header).encode()
        answer = self.client.answer({"header": data} | parts)
        return Answer(json.loads(answer["header"])["error"], answer["content"])

    def describe(self, **changes: Any) -> Answer:
        """Asks for the client's description."""
        return self.send(self.header("describe", **changes))

    def initial(self, **changes: Any) -> Answer:
        """Asks for initial weights."""
        return self.send(self.header("initial", **changes))

    def call(self, payload: Mapping[str, Any] | None = None, **changes: Any) -> Answer:
        """Calls a method; by default, the honest first call of the study."""
        given = {"model": self.initial().payload["model"]} if payload is None else payload
        header = self.header("call", **changes)
        return self.send(header, shared=encode(dict(given)), own=encode({}))


@dataclass(frozen=True)
class Answer:
    """What came back."""

    error: str
    content: bytes

    @property
    def payload(self) -> dict[str, Any]:
        """The content, which must be there."""
        assert not self.error, self.error
        found: dict[str, Any] = decode(self.content)
        return found


def forged(table: Mapping[str, Any]) -> str:
    """The digest that a proposal must have to be believed."""
    return digest([table["recipe"], table["algorithm"], table["seed"], table["version"]])


@dataclass(frozen=True)
class House:
    """The client's machine: its folders, and things that nobody should see, run or change."""

    folder: Path

    @property
    def weights(self) -> Path:
        """A file with tensors that is not meant for anybody."""
        return self.folder / SECRET / "weights.safetensors"

    @property
    def code(self) -> Path:
        """A file that leaves a mark when it is run."""
        return self.folder / SECRET / "code.py"

    @property
    def mark(self) -> Path:
        """Exists once foreign code has run."""
        return self.folder / "mark"

    @property
    def places(self) -> dict[str, str]:
        """Places of code that an evil server would like to have run, by the way they are named."""
        return {
            "file": f"{self.code}:Evil",
            "relative": f"{os.path.relpath(self.code)}:Evil",
            "module": "pydoc:pipepager",
            "system": "os:system",
            "own": "consort.core.registry:load_object",
            "missing": f"{self.code}x.py:Evil",
        }

    def furnish(self) -> House:
        """Puts everything into its place."""
        import torch

        self.code.parent.mkdir(parents=True)
        self.code.write_text(
            "from pathlib import Path\n"
            f"Path({str(self.mark)!r}).touch()\n"
            "from consort.algorithms.fedavg import FedAvg as Evil\n"
        )
        save_file({"secret": torch.full((3,), 42.0)}, self.weights)
        return self

    def files(self) -> set[str]:
        """Everything on the machine outside of the folder where the client keeps its state."""
        state = self.folder / "state"
        return {str(p) for p in self.folder.rglob("*") if state not in (p, *p.parents)}


def victim(
    house: House, agreed: Recipe | None = None, brings: Mapping[str, Any] | None = None, **more: Any
) -> Participant:
    """A client with data of its own."""
    said: list[str] = []
    own = dict(brings or {"data": holdings(CLIENT)})
    given = {"say": said.append, "policy": Policy(approve="listed")} | more
    return Participant(CLIENT, own, None, house.folder / "state", agreed, **given)


def values_in(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """All values of a table with the keys that lead to them, tables included."""
    yield path, value
    if isinstance(value, dict):
        for key, item in value.items():
            yield from values_in(item, (*path, key))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from values_in(item, (*path, number))


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """The same table with another value in one place."""
    if not path:
        return new
    first, *rest = path
    if isinstance(value, list):
        return [replaced(v, tuple(rest), new) if i == first else v for i, v in enumerate(value)]
    return {**value, first: replaced(value[first], tuple(rest), new)}
