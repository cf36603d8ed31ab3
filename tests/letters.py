"""A post office in this process: the messages of the Flower engine without Flower."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from consort.core.messages import Payload
from consort.core.params import Params
from consort.deployment.envelope import ClientEnvelopes
from consort.deployment.participant import Participant
from consort.deployment.policy import Policy
from consort.deployment.remote import RemoteFederation
from consort.deployment.study import Study, digest
from consort.engines.flower import Arrival, Flower, Ledger, Parts, reply_of
from consort.experiment.recipe import Recipe
from consort.experiment.run_folder import about_run, settle
from consort.run.observer import Observer
from consort.run.run import Run
from tests.institutions import NAMES, holdings


@dataclass
class PostOffice:
    """Answers a message when it is sent, unless something is arranged to happen to it."""

    participants: dict[str, Participant]
    fate: Callable[[str, dict[str, Any]], str] = lambda *_: "arrives"
    """Of (client, header): arrives, breaks (is lost, and the sender told), late, damaged, or the
    name of another client that answers in its place."""
    offline: set[str] = field(default_factory=set)
    waiting: dict[str, Arrival] = field(default_factory=dict)
    headers: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    envelopes: dict[str, ClientEnvelopes] = field(default_factory=dict)
    """Of every client, if messages are signed."""

    @property
    def nodes(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.participants, 100)}

    def online(self) -> set[int]:
        return {node for name, node in self.nodes.items() if name not in self.offline}

    def push(self, letters: Sequence[tuple[int, Parts]], seconds: float) -> list[str]:
        names = {node: name for name, node in self.nodes.items()}
        ids = []
        for node, parts in letters:
            ids.append(f"message {len(self.headers)}")
            header = json.loads(parts["header"])
            self.headers.append((names[node], header))
            self._deliver(ids[-1], names[node], header, parts)
        return ids

    def pull(self, ids: Iterable[str]) -> list[Arrival]:
        return [self.waiting.pop(number) for number in ids if number in self.waiting]

    def _deliver(self, number: str, name: str, header: dict[str, Any], parts: Parts) -> None:
        fate = self.fate(name, header)
        if fate == "breaks":
            self.waiting[number] = Arrival(number, {}, "its connection broke")
            return
        question = None
        if self.envelopes:
            question, parts = self.envelopes[name].open(parts)
        answer = self.participants[name].answer(parts)
        if question:
            answer = self.envelopes[fate if fate in self.envelopes else name].seal(question, answer)
        if fate == "damaged":
            answer = answer | {"content": b"nonsense"}
        if fate != "late":
            self.waiting[number] = Arrival(number, answer)


def participants(folder: Path, names: Sequence[str] = NAMES) -> dict[str, Participant]:
    """The clients, each with its own data and its own folder."""
    return {
        name: Participant(
            name,
            {"data": holdings(name)},
            None,
            folder / name,
            say=lambda _: None,
            policy=Policy(approve="listed"),
        )
        for name in names
    }


def engine_for(
    recipe: Recipe, algorithm: str, post: PostOffice, folder: Path, deadline: float = 5
) -> Flower:
    """The engine of a study."""
    study = Study.of(recipe, algorithm, 0).table
    return Flower(post, post.nodes, study, Ledger.open(folder / "exchanges.json"), deadline)


def ask(engine: Flower, client: str, **header: Any) -> Payload:
    """One question to one client, whose answer must be good."""
    ((_, answer),) = engine.exchange({client: (header, {})})
    reply = reply_of(client, answer)
    assert reply.error is None, reply.error
    return reply.content


def run_with(
    recipe: Recipe, algorithm: str, engine: Flower, folder: Path, observer: Observer | None = None
) -> Run:
    """A run whose clients are on the other side of an engine."""
    told = {client: ask(engine, client, kind="describe") for client in engine.nodes}
    engine.told = {client: digest(about) for client, about in told.items()}

    def initial(client: str, companion: Any, number: int) -> Params:
        weights: Params = ask(engine, client, kind="initial", companion=companion, draw=number)[
            "model"
        ]
        return weights

    remote = RemoteFederation.of(told, initial, 0, recipe.compute)
    federation = remote.protected(*recipe.protections(algorithm))
    chosen = recipe.algorithm(algorithm)
    if chosen.companion is not None:
        engine.companion = federation.chosen_companion(chosen.companion)
    about = {"title": "", "recipe": recipe.table, "partition": digest(told)[:16], "data": None}
    about |= {"tasks": {}, "clients": told, "workers": 1}
    settle(folder, about_run(recipe, algorithm, 0) | about, None)  # as the server does
    return Run(
        federation,
        chosen,
        recipe.run,
        0,
        folder,
        observer=observer or Observer(),
        engine=lambda _: engine,
    )
