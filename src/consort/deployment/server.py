"""The server of a federation: waits for its clients, then runs an algorithm with them."""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from consort.assembly import about_run, settle
from consort.deployment.announced import Announced
from consort.deployment.board import Board, BoardWatcher
from consort.deployment.credentials import ServerCredentials
from consort.deployment.front import Front
from consort.deployment.link import SuperLink
from consort.deployment.study import Study, digest
from consort.engines.flower import Flower, Ledger, reply_of
from consort.errors import ClientFailed, Failure, UsageError
from consort.params import Params
from consort.recipe import Recipe
from consort.run import Run, Watcher

Description = dict[str, Any]
_PATIENCE = 2.0  # seconds between two questions to a client that refused


class Hub:
    """Flower's server with the port before it, and the nodes of the clients that may join."""

    def __init__(
        self,
        listen: str,
        credentials: ServerCredentials,
        keys: Mapping[str, bytes],
        folder: Path,
        seen: Callable[[str], Any] = lambda _: None,
    ) -> None:
        self.link = SuperLink(credentials.folder, folder)
        self.front = Front(listen, self.link.address, credentials, seen)
        self.keys = keys

    def __enter__(self) -> Hub:
        with ExitStack() as stack:
            stack.callback(self.link.close)
            self.link.keep_alive()
            self.nodes = {name: self.link.register(name, key) for name, key in self.keys.items()}
            self.front.start()
            stack.callback(self.front.close)
            self.post = self.link.open_run()
            stack.callback(self.post.close)
            self._opened = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._opened.close()


class Server:
    """One run of `consort server`."""

    def __init__(
        self,
        recipe: Recipe,
        algorithm: str,
        seed: int,
        folder: Path,
        credentials: ServerCredentials,
        deadline: float,
        say: Callable[[str], Any],
    ) -> None:
        self.recipe, self.name, self.seed, self.folder = recipe, algorithm, seed, folder
        self.algorithm = recipe.algorithm(algorithm)
        if self.algorithm.pools_data:
            raise UsageError(f"{algorithm} pools the data: it cannot run among institutions")
        self.credentials = credentials
        self.deadline = deadline
        self.say = say
        self.study = Study.of(recipe, algorithm, seed)
        self.board = Board(folder / "status.json")

    def go(self, listen: str, watcher: Watcher) -> None:
        """Opens the port, waits for everybody, runs to the end."""
        keys = self._expected()
        with ExitStack() as stack:
            stack.enter_context(_only_server(self.folder))
            self.board.begin(list(keys), algorithm=self.name, rounds=self.recipe.run.rounds)
            stack.enter_context(self.board.alive())
            place = self.folder / "flower"
            hub = stack.enter_context(Hub(listen, self.credentials, keys, place, self.board.seen))
            self.say(f"listening on {listen}; waiting for {', '.join(keys)}")
            self.run(hub, watcher)

    def run(self, hub: Hub, watcher: Watcher) -> Run:
        """Waits for the clients of an open hub, then runs to the end."""
        ledger = Ledger.open(self.folder / "exchanges.json")
        if not ledger.path.exists() and any(self.folder.glob("round-*.ckpt")):
            raise Failure(f"{ledger.path} is missing: start the run again in a new --out")
        engine = Flower(
            hub.post, hub.nodes, self.study.table, ledger, self.deadline, tell=self.board.client
        )
        self.board.run(phase="waiting")
        try:
            run = self._prepare(engine, watcher)
            self.board.run(phase="running")
            run.go()
        except BaseException as error:
            self.board.run(phase="stopped")
            self.board.event(f"stopped: {str(error) or type(error).__name__}")
            raise
        self.board.run(phase="finished")
        self.board.event("finished")
        return run

    def _expected(self) -> dict[str, bytes]:
        keys = self.credentials.admitted()
        count = sum(group.count for group in self.recipe.all_groups)
        if len(keys) != count:
            raise UsageError(
                f"the recipe is for {count} clients, but {len(keys)} are admitted in "
                f"{self.credentials.folder} ({', '.join(keys) or 'none'})"
            )
        return keys

    def _prepare(self, engine: Flower, watcher: Watcher) -> Run:
        told = self._gather(engine)
        engine.told = {client: digest(about) for client, about in told.items()}

        def ask(client: str, companion: Mapping[str, Any] | None, number: int) -> Params:
            header = {"kind": "initial", "companion": companion, "draw": number}
            ((_, answer),) = _ask(engine, {client: header})
            if isinstance(answer, ClientFailed):
                raise answer
            weights: Params = answer["model"]
            return weights

        compute = self.recipe.compute
        federation = Announced(told, ask, self.seed, compute)
        table = self.algorithm.companion
        if table is not None:
            engine.companion = federation.chosen_companion(table)
        run = Run(
            federation,
            self.algorithm,
            self.recipe.run,
            self.seed,
            self.folder,
            watcher=BoardWatcher(self.board, watcher),
            engine=lambda _: engine,
        )
        self.algorithm.start(federation.roster)  # refuses unlike clients before anything is written
        settle(self.folder, self._description(told), None)
        return run

    def _gather(self, engine: Flower) -> dict[str, Description]:
        """Asks every client who it is, as they come; those that cannot take part are named."""
        told: dict[str, Description] = {}
        said: dict[str, str] = {}
        while len(told) < len(engine.nodes):
            online = engine.post.online()
            missing = sorted(engine.nodes.keys() - told.keys())
            for client in missing:
                if engine.nodes[client] not in online:
                    self.board.client(client, "not connected")
            here = [client for client in missing if engine.nodes[client] in online]
            for client, answer in _ask(engine, {client: {"kind": "describe"} for client in here}):
                if not isinstance(answer, ClientFailed):
                    told[client] = dict(answer)
                    self.board.client(client, "ready")
                    self.say(f"{client} has joined ({len(told)} of {len(engine.nodes)})")
                    continue
                self.board.client(client, f"refused: {answer.reason}")
                if said.get(client) != answer.reason:
                    said[client] = answer.reason
                    self.board.event(str(answer))
                    self.say(str(answer))
            time.sleep(_PATIENCE if said else 0.2)
        return dict(sorted(told.items()))

    def _description(self, told: Mapping[str, Description]) -> Description:
        tasks: dict[str, Any] = {}
        for about in told.values():
            tasks |= about["tasks"]
        return about_run(self.recipe, self.name, self.seed) | {
            "title": self.recipe.title,
            "recipe": json.loads(Recipe.wire.dump_json(self.recipe)),
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
    """The contents of the answers, or what went wrong."""
    letters = {client: (header, dict[str, bytes]()) for client, header in headers.items()}
    for client, answer in engine.exchange(letters):
        reply = reply_of(client, answer)
        yield client, reply.error or reply.content


@contextmanager
def _only_server(folder: Path) -> Iterator[None]:
    """Two servers must not write into one folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "server.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UsageError(f"another server runs in {folder}") from error
        yield
