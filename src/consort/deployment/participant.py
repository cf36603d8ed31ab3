"""Answers the messages of the server: describes the client, and carries out its calls."""

from __future__ import annotations

import json
import logging
import re
import shutil
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from consort.core.files import write_file
from consort.core.messages import Call
from consort.core.validation import Table
from consort.core.wire import decode, encode
from consort.deployment.counts import Counts
from consort.deployment.logs import log, milliseconds
from consort.deployment.privacy_ledger import (
    FILE,
    Account,
    PrivacyLedger,
    PrivacyLimit,
    has_noise,
    name_of_data,
    refuse_without_noise,
)
from consort.deployment.site import Identity, OwnMachine
from consort.deployment.study import Enrolment, Study, digest
from consort.engines.host import ClientHost
from consort.engines.states import StateStore
from consort.errors import ConsortError, Failure, Refused, UsageError
from consort.experiment.recipe import Recipe

Parts = dict[str, bytes]
_DISK_FULL = "[Errno 28]"
_LAST = "last-message"
_KEPT_DAYS = 30


@dataclass
class Participant:
    """One client of a federation. It answers one message at a time, and none of them twice."""

    name: str
    brings: Table
    """Data, model and tasks, as in a group of a recipe."""
    data: Path | None
    folder: Path
    """Where the state of the client is kept, for each run."""
    agreed: Recipe | None = None
    """The only recipe that the client accepts; `None` accepts any without code."""
    say: Callable[[str], Any] = print
    ledger: Path | None = None
    """The file of the privacy ledger; by default one in `folder`."""
    limit: PrivacyLimit | None = None
    """The limit of the client's data over all runs; `None` for none."""
    counts: Counts = field(default_factory=Counts)
    """How exactly the client tells how many examples it has."""
    identity: Identity | None = None
    """Signs what other clients rely on; `None` signs and checks nothing."""
    _session: str = field(default="", init=False)
    _enrolment: Enrolment | None = field(default=None, init=False)
    _host: ClientHost | None = field(default=None, init=False)

    def answer(self, parts: Parts) -> Parts:
        """The reply to a message; errors are replies as well.

        Args:
            parts: The parts of the message, as bytes.

        Returns:
            The parts of the reply.
        """
        arrived = time.monotonic()
        try:
            header = json.loads(parts["header"])
            known = self._accept(header["session"], int(header["number"]))
            if header["known"] and not known:
                raise Failure("its state of this run is gone: start the run again in a new --out")
            enrolled = self._enrol(Study(**header["study"]), header["told"])
            match header["kind"]:
                case "describe":
                    return _answer(encode(self.counts.description(enrolled.description)))
                case "initial":
                    weights = enrolled.initial(header["companion"], int(header["draw"]))
                    return _answer(encode({"model": weights}))
                case "call":
                    return self._call(enrolled, header, parts, arrived)
                case other:
                    raise Refused(f"unknown kind of message: {other!r}")
        except ConsortError as error:
            self.say(f"refused: {error}")
            log("refused", logging.WARNING, kind=type(error).__name__, reason=str(error))
            return _answer(error=str(error))
        except Exception as error:
            return self._failed(f"{type(error).__name__}: {error}", traceback.format_exc())

    def _accept(self, session: str, number: int) -> bool:
        """Refuses repeated and outdated messages; returns whether the run is known here."""
        if not re.fullmatch(r"[0-9a-f]{32}", session):
            raise Refused("the session id of the run is not valid")
        if session != self._session:
            self._session, self._host = session, None
        path = self.folder / session / _LAST
        last = int(path.read_text()) if path.exists() else 0
        if not last:
            self._forget_old_runs()
        if number <= last:
            raise Refused(f"message {number} is repeated or outdated: {last} was already answered")
        write_file(path, str(number).encode(), durable=True)
        return last > 0

    def _forget_old_runs(self) -> None:
        """Deletes the state of runs without messages in the last 30 days."""
        oldest = time.time() - _KEPT_DAYS * 86_400
        for path in self.folder.glob(f"*/{_LAST}"):
            if path.stat().st_mtime < oldest:
                shutil.rmtree(path.parent)

    def _enrol(self, proposal: Study, told: str | None) -> Enrolment:
        """Joins the study of a message, unless it has been joined already."""
        if self._enrolment is None or proposal.digest != self._enrolment.study.digest:
            study = proposal.accepted(self.agreed)
            self.say(f"joined {study.algorithm}, seed {study.seed}, study {study.digest[:8]}")
            self._enrolment, self._host = None, None
            self._enrolment = Enrolment.of(study, self.name, self.brings, self.data)
            self._enrolment.recipe.compute.apply()
            log("joined", algorithm=study.algorithm, study=study.digest[:8])
        refuse_without_noise(self._enrolment.federation.protections, self.limit)
        description = self.counts.description(self._enrolment.description)
        if told is not None and told != digest(description):
            raise UsageError(
                "its data, model, tasks or training settings have changed since the run began"
            )
        return self._enrolment

    def _call(
        self, enrolled: Enrolment, header: dict[str, Any], parts: Parts, arrived: float
    ) -> Parts:
        payload = decode(parts["shared"]) | decode(parts["own"])
        call = Call.from_header(header["call"], payload)
        if call.client != self.name:
            raise Refused(f"the call is for {call.client}")
        host = self._hosted(enrolled, header["companion"])
        counted = header["counted"]
        host.store.forget_after(self.name, counted and (counted[0], counted[1]))
        (reply,) = host.answer([call])
        if reply.error:
            return self._failed(reply.error.reason, reply.error.traceback)
        if time.monotonic() - arrived > header["seconds"]:
            self.say(f"round {call.round}: the answer was too late and is not sent")
            log("late", logging.WARNING, round=call.round, method=call.method)
            return _answer(error="was too late", late=True)
        content = encode(reply.content)
        self.say(f"round {call.round}: {call.method} answered in {reply.seconds:.1f} s")
        seconds = milliseconds(reply.seconds)
        log("answered", round=call.round, method=call.method, seconds=seconds, bytes=len(content))
        return _answer(content, seconds=reply.seconds, flops=reply.flops)

    def _hosted(self, enrolment: Enrolment, companion: Table | None) -> ClientHost:
        if self._host is None:
            enrolled = enrolment.accompanied(companion)
            schedule = enrolled.recipe.run
            self._host = ClientHost(
                enrolled.federation,
                enrolled.algorithm,
                enrolled.study.seed,
                schedule.rounds,
                StateStore(self.folder / self._session),
                schedule.tuning_epochs,
                site=self._site(enrolled),
            )
        return self._host

    def _site(self, enrolled: Enrolment) -> OwnMachine:
        """What the client keeps to itself in this run; the ledger has an entry for it from now."""
        limit = self.limit
        file = Path(limit.ledger) if limit and limit.ledger else self.ledger or self.folder / FILE
        data = (limit and limit.data) or name_of_data(self.brings, self.data)
        account = Account(PrivacyLedger(file), data, self._session, limit)
        noisy = has_noise(enrolled.federation.protections)
        account.ledger.begin(data, self._session, enrolled.study.algorithm, noisy, limit)
        return OwnMachine(self.folder / self._session, account, self.counts, self.identity)

    def _failed(self, reason: str, trace: str) -> Parts:
        """Sends only the kind of error to the server; the details stay in the client's log."""
        self.say(trace or f"failed: {reason}")
        kind = reason.partition(":")[0]
        log("failed", logging.ERROR, kind=kind if trace else "Failure")
        if _DISK_FULL in reason:
            return _answer(error="its disk is full")
        return _answer(error=f"{kind} (see the client's own log)" if trace else reason)


def _answer(
    content: bytes = b"", error: str = "", seconds: float = 0.0, flops: int = 0, late: bool = False
) -> Parts:
    header = json.dumps({"error": error, "seconds": seconds, "flops": flops, "late": late})
    return {"header": header.encode(), "content": content}
