"""The server of a federation: waits for its clients, then runs an algorithm with them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from consort.core.files import held
from consort.core.params import Params
from consort.core.registry import did_you_mean
from consort.deployment.approval import WAITING
from consort.deployment.courier import Courier
from consort.deployment.credentials import ServerCredentials
from consort.deployment.logs import log
from consort.deployment.metrics import Counters
from consort.deployment.remote import RemoteFederation, described, initial_weights
from consort.deployment.stack import FlowerStack
from consort.deployment.status_file import StatusFile, StatusObserver
from consort.deployment.study import Study, digest
from consort.engines.answers import Answers
from consort.engines.flower import NOT_ADMITTED, Flower, Ledger, reply_of
from consort.engines.host import ClientHost
from consort.errors import ClientFailed, Failure, UsageError
from consort.experiment.assembly import run_of
from consort.experiment.preflight import naming, refuse_among_institutions
from consort.experiment.recipe import Recipe
from consort.experiment.run_folder import about_run, settle
from consort.run.observer import Observer, Observers
from consort.run.run import Run

Description = dict[str, Any]
_RETRY_SECONDS = 2.0  # between two requests to a client that refused
_REMEDY = "admit the missing clients (consort site admit), or change the clients in the recipe"


class FederationServer:
    """One run of `consort server`.

    Args:
        recipe: The recipe.
        algorithm: The name of one of its algorithms.
        seed: The seed of the run.
        folder: Where the run is kept.
        credentials: The server's credentials.
        deadline: Seconds that a client has to answer a call.
        say: Prints a line for the user.
        by_hand: The clients that are reached by files which somebody carries.

    Raises:
        UsageError: If the recipe cannot run between institutions.
    """

    def __init__(
        self,
        recipe: Recipe,
        algorithm: str,
        seed: int,
        folder: Path,
        credentials: ServerCredentials,
        deadline: float,
        say: Callable[[str], Any],
        by_hand: Collection[str] = (),
    ) -> None:
        self.by_hand = by_hand
        self.recipe, self.name, self.seed, self.folder = recipe, algorithm, seed, folder
        self.credentials = credentials
        self.deadline = deadline
        self.say = say
        self.study = Study.of(recipe, algorithm, seed)
        self.status = StatusFile(folder / "status.json")
        self.counters = Counters()
        self.ledger = Ledger.open(folder / "exchanges.json")
        if not self.ledger.members:  # a run that has begun was not refused
            refuse_among_institutions(recipe, algorithm)

    def go(self, listen: str, observer: Observer) -> None:
        """Opens the port, waits for all clients, and runs to the end.

        Args:
            listen: HOST:PORT to listen on.
            observer: Shows the progress.

        Raises:
            UsageError: If the admitted clients are not those of the recipe.
            Failure: If the port cannot be opened, or the run fails.
        """
        keys = self._expected()
        with ExitStack() as stack:
            stack.enter_context(held(self.folder, "server.lock"))
            members = list(self.ledger.members or keys)
            self.status.begin(members, algorithm=self.name, rounds=self.recipe.run.rounds)
            stack.enter_context(self.status.alive())
            place = self.folder / "flower"
            carried = {name: key for name, key in keys.items() if name in self.by_hand}
            courier = Courier(self.folder, carried, self._report) if carried else None
            flower = stack.enter_context(
                FlowerStack(
                    listen,
                    self.credentials,
                    keys,
                    place,
                    self.status.seen,
                    self._report,
                    self.counters.refused,
                    courier,
                )
            )
            self.say(f"listening on {listen}; waiting for {', '.join(keys)}")
            self.run(flower, observer)

    def run(self, flower: FlowerStack, observer: Observer) -> Run:
        """Waits for the clients of a started Flower stack, then runs to the end.

        Args:
            flower: The stack.
            observer: Shows the progress.

        Returns:
            The finished run.

        Raises:
            UsageError: If a client that is needed is no longer admitted.
            Failure: If the state of an earlier run is incomplete, or the run fails.
        """
        ledger = self.ledger
        if not ledger.path.exists() and any(self.folder.glob("round-*.ckpt")):
            raise Failure(f"{ledger.path} is missing: start the run again in a new --out")
        engine = Flower(
            flower.grid,
            flower.nodes,
            self.study.table,
            ledger,
            self.deadline,
            envelopes=flower.envelopes,
            tell=self.status.client,
            admitted=flower.admits,
        )
        self.status.run(phase="waiting")
        try:
            run = self._prepare(engine, observer)
            sizes = [int(about["parameters"]) for about in ledger.members.values()]
            flower.bound_answers(max(sizes))
            self.status.run(phase="running")
            run.go()
        except BaseException as error:
            self.status.run(phase="stopped")
            log("stopped", logging.ERROR, kind=type(error).__name__)
            self.status.event(f"stopped: {str(error) or type(error).__name__}")
            raise
        self.status.run(phase="finished")
        self.status.event("finished")
        return run

    def _report(self, text: str) -> None:
        self.status.event(text)
        self.say(text)

    def _expected(self) -> dict[str, bytes]:
        """The keys of the clients of this run; once it has begun, of those still admitted."""
        keys = self.credentials.admitted()
        for name in self.by_hand:
            if name not in keys:
                raise UsageError(f"--by-hand {did_you_mean(name, keys)}")
        if self.ledger.members:
            return {name: key for name, key in keys.items() if name in self.ledger.members}
        count = sum(group.count for group in self.recipe.all_groups)
        if len(keys) != count:
            raise UsageError(
                f"the recipe is for {count} clients, but {len(keys)} are admitted in "
                f"{self.credentials.folder} ({', '.join(keys) or 'none'}): {_REMEDY}"
            )
        return keys

    def _prepare(self, engine: Flower, observer: Observer) -> Run:
        told = self._gather(engine)
        engine.told = {client: digest(about) for client, about in told.items()}

        def ask(client: str, companion: Mapping[str, Any] | None, number: int) -> Params:
            header = {"kind": "initial", "companion": companion, "draw": number}
            candidates = _in_place_of(client, federation, engine)
            for one in sorted(candidates, key=lambda other: other in self.by_hand):
                ((_, answer),) = _ask(engine, {one: header})
                try:
                    return initial_weights(one, answer, told[one], companion, number)
                except ClientFailed as error:
                    self._refuse(error, {})
                    failed = error
            raise failed

        federation = RemoteFederation.of(told, ask, self.seed, self.recipe.compute)
        table = self.recipe.algorithm(self.name).companion
        if table is not None:
            engine.companion = federation.chosen_companion(table)
        with naming(self.name):
            run = run_of(
                self.recipe,
                self.name,
                federation,
                self.folder,
                observer=Observers(StatusObserver(self.status), observer),
                engine=lambda host: _limited(engine, host),
            )
            if not self.ledger.members:  # refuses incompatible clients before anything is written
                run.algorithm.start(run.federation.roster)
        settle(self.folder, self._description(told), None)
        self.ledger.members = told
        self.ledger.save()
        return run

    def _gather(self, engine: Flower) -> dict[str, Description]:
        """Asks every client for its description as it connects; reports those that refuse."""
        told: dict[str, Description] = {}
        said: dict[str, str] = {}
        everybody = self.ledger.members.keys() or engine.nodes.keys()
        while len(told) < len(everybody):
            online = engine.post.online()
            told |= {
                client: self._remembered(client)
                for client in sorted(everybody - told.keys())
                if not engine.admitted(client)
            }
            missing = sorted(everybody - told.keys())
            for client in missing:
                if engine.nodes[client] not in online:
                    self.status.client(client, "not connected")
            here = [client for client in missing if engine.nodes[client] in online]
            for client, answer in _ask(engine, {client: {"kind": "describe"} for client in here}):
                try:
                    told[client] = described(client, answer)
                except ClientFailed as error:
                    self._refuse(error, said)
                    continue
                self.status.client(client, "ready")
                self.say(f"{client} has joined ({len(told)} of {len(everybody)})")
            time.sleep(_RETRY_SECONDS if said else 0.2)
        if not any(map(engine.admitted, told)):
            raise UsageError(
                f"none of the clients of {self.folder} is admitted any more: admit one of them "
                "again (consort site admit), or start a new run in another --out"
            )
        return dict(sorted(told.items()))

    def _refuse(self, error: ClientFailed, said: dict[str, str]) -> None:
        """Reports that a client cannot take part now; the same reason is reported once."""
        waiting = error.reason == WAITING
        self.status.client(error.client, WAITING if waiting else f"refused: {error.reason}")
        if said.get(error.client) != error.reason:
            said[error.client] = error.reason
            self.status.event(str(error))
            self.say(str(error))

    def _remembered(self, client: str) -> Description:
        """The description of a client that is no longer admitted; the run continues without it."""
        if client not in self.ledger.members:
            raise UsageError(f"{client} {NOT_ADMITTED} and the run has not begun: {_REMEDY}")
        self.status.client(client, NOT_ADMITTED)
        self.status.event(f"{client} {NOT_ADMITTED}: the run continues without it")
        self.say(f"{client} {NOT_ADMITTED}: the run continues without it")
        return self.ledger.members[client]

    def _description(self, told: Mapping[str, Description]) -> Description:
        tasks: dict[str, Any] = {}
        for about in told.values():
            tasks |= about["tasks"] | about.get("measured", {})
        return about_run(self.recipe, self.name, self.seed, noise="secret") | {
            "title": self.recipe.title,
            "recipe": self.recipe.table,
            "partition": digest(told)[:16],
            "tasks": tasks,
            "clients": {
                client: about
                | {
                    "group": client,
                    "model": str(about["model"]["name"]),
                    "tasks": list(about["tasks"]),
                    "labels": {},
                }
                for client, about in told.items()
            },
            "engine": "flower",
            "workers": 1,
            "data": None,
        }


def _ask(engine: Flower, headers: Mapping[str, dict[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Sends a header to each client; yields the contents of the answers, or the errors."""
    letters = {client: (header, dict[str, bytes]()) for client, header in headers.items()}
    for client, answer in engine.exchange(letters):
        reply = reply_of(client, answer)
        yield client, reply.error or reply.content


def _limited(engine: Flower, host: ClientHost) -> Flower:
    """The engine, which now knows how large the answers to its calls can be."""
    engine.limits = Answers.sent(host.federation, host.algorithm).limits
    return engine


def _in_place_of(client: str, federation: RemoteFederation, engine: Flower) -> list[str]:
    """The admitted clients with the same model as a client, itself first."""
    wanted = federation.members[client].architecture
    ids = dict.fromkeys((client, *federation.client_ids))
    found = [
        other
        for other in ids
        if engine.admitted(other) and federation.members[other].architecture == wanted
    ]
    if found:
        return found
    raise Failure(
        f"{client} {NOT_ADMITTED} and no other client has the same model: admit it again "
        "(consort site admit), or start a new run in another --out"
    )
