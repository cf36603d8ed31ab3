"""All rounds of one algorithm on one federation; a run that was interrupted can be resumed."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from consort.core import files
from consort.core.algorithm import Algorithm, Clients
from consort.core.engine import Engine
from consort.core.messages import Call, Reply
from consort.core.randomness import generator_for
from consort.core.row import Row
from consort.engines.answers import Answers
from consort.engines.embedded import Embedded
from consort.engines.host import ClientHost
from consort.engines.middleware import Checked, Faulty, Metered, Policed
from consort.engines.states import StateStore
from consort.engines.tally import Tally
from consort.engines.workers import Workers
from consort.errors import ClientFailed, NoReplies
from consort.federation.federation import Federation
from consort.federation.participation import cohort, cohort_size
from consort.federation.protection import Setting
from consort.federation.selection import Candidates, Reports, select, selection_of
from consort.run.checkpoints import Checkpoints
from consort.run.description import described
from consort.run.folder import CLEANED
from consort.run.history import History
from consort.run.observer import Observer
from consort.run.rows import rows_of_scores, rows_of_work
from consort.run.schedule import Schedule

_STATES = "clients"


@dataclass
class Run:
    """One run of an algorithm on a federation.

    Raises:
        UsageError: If a protection does not suit the algorithm or a client, or data cannot be
            pooled.

    Examples:
        >>> import torch
        >>> from consort import Classification, Examples, Federation, Member, ModelSpec
        >>> from consort import Run, Schedule, Splits
        >>> from consort.algorithms.fedavg import FedAvg
        >>> examples = Examples(torch.eye(4), {"place": torch.arange(4)})
        >>> splits = Splits(examples, examples, examples)
        >>> member = Member.of({"place": Classification(4)}, ModelSpec.of({"name": "mlp"}), splits)
        >>> federation = Federation({"bank-1": member, "bank-2": member})
        >>> history = Run(federation, FedAvg(), Schedule(rounds=2)).go()
        >>> sorted({row.round for row in history if row.metric == "accuracy"})
        [1, 2]
    """

    federation: Federation
    """The clients."""
    algorithm: Algorithm[Any]
    """The algorithm."""
    schedule: Schedule = field(default_factory=Schedule)
    """The number of rounds, and how they proceed."""
    seed: int = 0
    """The seed of all randomness except the initial weights."""
    folder: Path | None = None
    """Where checkpoints and results are saved; None to keep everything in memory."""
    workers: int = 1
    """The number of worker processes; 1 runs all clients in this process."""
    observer: Observer = field(default_factory=Observer)
    """Is told how the run proceeds."""
    engine: Callable[[ClientHost], Engine] | None = None
    """Starts the engine that delivers calls, in place of this process or of workers."""
    name: str = ""
    """The name of the algorithm in tables; if empty, that of its class or module."""
    title: str = ""
    """The title of the report."""

    def __post_init__(self) -> None:
        if self.algorithm.pools_data:
            self.federation = self.federation.pooled()
        present = cohort_size(len(self.federation.client_ids), self.schedule.participation)
        self.federation.check(self.algorithm, present)
        self.history = History(self.folder and self.folder / "history.jsonl")
        self.server: Any = None
        self._done = 0
        self._selection = selection_of(self.schedule.selection)
        self._reports = Reports()

    def go(self) -> History:
        """Runs all rounds, from the start or from the last checkpoint in the folder.

        Returns:
            The history of all rounds.

        Raises:
            UsageError: If another process uses the folder.
            Failure: If a client failed and the schedule says `stop`, all clients of a round failed,
                or a saved file is damaged.
        """
        self.federation.compute.apply()
        with ExitStack() as stack:
            if self.folder:
                stack.enter_context(files.held(self.folder))
                about = described(self, self.folder)
                self.observer.described(about)
                if about.get(CLEANED):  # finished, and nothing is left to go on from
                    self.observer.finished()
                    return self.history
            store = self._store(stack)
            if not self._restore(store):
                self.server = self.algorithm.start(self.federation.roster)
            if self._done < self.schedule.rounds:
                self.observer.started(self._done + 1, self.schedule.rounds)
                engine = Tally(self._protected(self._engine(stack, store)))
                for round_ in range(self._done + 1, self.schedule.rounds + 1):
                    self._round(round_, engine)
                    self._save(round_, store)
            self.observer.finished()
        return self.history

    def saved(self, back: int = 0) -> dict[str, Any] | None:
        """The last checkpoint.

        Args:
            back: 0 for the last finished round, 1 for the one before it; older ones are not kept.

        Returns:
            The `round`, the state of the `server`, the length of `history` with its digest, and
            the mark of the clients' `states`; None if there is no such checkpoint.

        Raises:
            Failure: If the checkpoint is damaged, or was written by another version of the
                algorithm.
        """
        if self.folder is None:
            return None
        state = self.algorithm.state_type()
        return Checkpoints(self.folder).load(back, {state.__name__: state})

    def states(self, saved: Mapping[str, Any]) -> StateStore:
        """The clients' states that a checkpoint counts on, to be read.

        Args:
            saved: The checkpoint, as `saved` returns it.
        """
        return StateStore(self.folder and self.folder / _STATES, saved.get("states"))

    def once_more(
        self, round_: int, server: Any, store: StateStore, wrap: Callable[[Engine], Engine]
    ) -> Any:
        """Repeats a round from the server's state before it; the run itself is not changed.

        Args:
            round_: The round to repeat.
            server: The state of the server before the round.
            store: The states of the clients before the round.
            wrap: Wraps the engine, for example to record calls and replies.

        Returns:
            The state of the server after the round; the given one if no client replied.
        """
        self.federation.compute.apply()
        with ExitStack() as stack:
            engine = self._protected(wrap(self._engine(stack, store)))
            reports = Reports()
            if self._selection:
                earlier = (row for row in self.history if row.round < round_)
                reports.add(earlier, self.algorithm.reports)
            try:
                clients = self._clients(self._present(round_, reports), round_, engine)
                with self._during_round():
                    return self.algorithm.round(server, clients)
            except NoReplies:
                return server

    def _round(self, round_: int, engine: Tally) -> None:
        start = time.perf_counter()
        present = self._present(round_, self._reports)
        self.observer.round_started(round_, len(present))
        clients = self._clients(present, round_, engine)
        try:
            with self._during_round():
                self.server = self.algorithm.round(self.server, clients)
            self._keep(clients.notes)
            engine.close_round(round_, clients.population)
        except NoReplies as error:
            engine.close_round(round_, clients.population)
            self.observer.failed(ClientFailed("(all)", f"round {round_} is skipped: {error}"))
        self._note(round_, "seconds", time.perf_counter() - start)
        last = round_ == self.schedule.rounds
        every = self.schedule.evaluate_every
        if last or (every and round_ % every == 0):
            self._evaluate(round_, engine)
        self._note(round_, "peak_memory_mib", _peak_memory())

    def _present(self, round_: int, reports: Reports) -> tuple[str, ...]:
        ids, share = self.federation.client_ids, self.schedule.participation
        if self._selection is None:
            return cohort(ids, share, self.seed, round_)
        candidates = Candidates(
            ids=ids,
            count=cohort_size(len(ids), share),
            round=round_,
            generator=generator_for(self.seed, round_, "cohort"),
            examples=lambda client: self.federation.known(client).examples,
            losses=reports.losses,
            rounds=reports.rounds,
        )
        return select(self._selection, candidates)

    def _clients(
        self, ids: tuple[str, ...], round_: int, engine: Engine, evaluation: bool = False
    ) -> Clients:
        return Clients(
            ids=ids,
            round=round_,
            rounds=self.schedule.rounds,
            seed=self.seed,
            engine=engine,
            population=len(self.federation.client_ids),
            evaluation=evaluation,
            bench=self.federation.server_side,
        )

    def _evaluate(self, round_: int, engine: Engine) -> None:
        ids = self.federation.evaluation_ids
        start = time.perf_counter()
        clients = self._clients(ids, round_, engine, True)
        replies = self.algorithm.evaluate(self.server, clients)
        self._note(round_, "evaluation_seconds", time.perf_counter() - start)
        for client, content in replies.items():
            for name, found in content.items():
                if isinstance(found, Mapping):
                    self._keep(rows_of_scores(round_, client, name, found))
                else:
                    clients.note(name, {client: found})
        self._keep(clients.notes)
        self.observer.evaluated(round_, replies)

    def _store(self, stack: ExitStack) -> StateStore:
        folder = self.folder and self.folder / _STATES
        if folder is None and (self.engine or self.workers > 1):  # processes share states on disk
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="consort-")))
        return StateStore(folder)

    def _engine(self, stack: ExitStack, store: StateStore) -> Engine:
        for extra in self.federation.extras:
            extra.prepare()
        host = ClientHost(
            self.federation,
            self.algorithm,
            self.seed,
            self.schedule.rounds,
            store,
            self.schedule.tuning,
        )
        engine = self._start_engine(host)
        stack.callback(engine.close)
        engine = Metered(engine, self._record)
        engine = Checked(engine, Answers.sent(host.federation, host.algorithm))
        if self.schedule.dropout or self.schedule.stragglers:
            engine = Faulty(engine, self.seed, self.schedule.dropout, self.schedule.stragglers)
        return Policed(engine, self.schedule.on_error, self.schedule.retries, self.observer.failed)

    def _protected(self, engine: Engine) -> Engine:
        """The engine, wrapped by the server halves of all protections."""
        setting = Setting(self.federation, self.algorithm, self.observer.failed)
        for protection in self.federation.protections:
            engine = protection.server(engine, setting)
        if any(protection.rewrites for protection in self.federation.protections):
            table = self.algorithm.companion
            federation = self.federation if table is None else self.federation.accompanied(table)
            answers = Answers.restored(federation, self.algorithm)
            engine = Checked(engine, answers, self.observer.failed)
        return engine

    def _during_round(self) -> ExitStack:
        stack = ExitStack()
        for protection in self.federation.protections:
            stack.enter_context(protection.during_round(self.algorithm))
        return stack

    def _start_engine(self, host: ClientHost) -> Engine:
        if self.engine:
            return self.engine(host)
        return Workers(host, self.workers) if self.workers > 1 else Embedded(host)

    def _record(self, call: Call, reply: Reply, down: dict[str, int], up: dict[str, int]) -> None:
        if not call.evaluation:
            flops = self.federation.compute.count_flops
            self._keep(rows_of_work(call, reply, down, up, flops))
        self.observer.answered(call)

    def _keep(self, rows: Iterable[Row]) -> None:
        rows = list(rows)
        for row in rows:
            self.history.add(row)
        if self._selection:
            self._reports.add(rows, self.algorithm.reports)

    def _note(self, round_: int, metric: str, value: float) -> None:
        self.history.add(Row(round_, metric, value))

    def _save(self, round_: int, store: StateStore) -> None:
        """Makes a round durable: first what the checkpoint counts on, then the checkpoint."""
        rows = self.history.pending
        states = store.commit()
        length = self.history.flush()
        self._done = round_
        if self.folder:
            content = {
                "round": round_,
                "history": length,
                "history_digest": self.history.digest,
                "states": states,
                "server": self.server,
            }
            Checkpoints(self.folder).save(round_, content)
        self.observer.measured(round_, rows)

    def _restore(self, store: StateStore) -> bool:
        """Goes back to the last checkpoint; what was written after it is removed."""
        content = self.saved() or {"round": 0, "history": 0}
        self._done = content["round"]
        self.history.cut(content["history"], content.get("history_digest", ""))
        store.rewind(content.get("states"), self._done)
        if self.folder:
            Checkpoints(self.folder).tidy()
        self.server = content.get("server")
        if self._selection:
            self._reports = Reports()
            self._reports.add(self.history, self.algorithm.reports)
        return self._done > 0


def _peak_memory() -> float:
    """The largest resident memory of this process so far, in MiB (Linux reports KiB)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
