"""Answers the messages of the server: describes the client, and carries out its calls."""

from __future__ import annotations

import hashlib
import logging
import shutil
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from consort.core.files import write_file
from consort.core.messages import Call, Payload
from consort.core.permission import permitting
from consort.core.validation import Table
from consort.core.wire import decode, encode, tensors_in
from consort.deployment.answers import Answer, LastAnswer, Parts, question_digest
from consort.deployment.approval import Studies
from consort.deployment.enrolment import Enrolment
from consort.deployment.invitation import Invitation
from consort.deployment.logs import log, milliseconds
from consort.deployment.policy import Policy
from consort.deployment.privacy_ledger import (
    FILE,
    Account,
    PrivacyLedger,
    has_noise,
    name_of_data,
    refuse_without_noise,
)
from consort.deployment.schema import Ask, Describe, Initial, read_message
from consort.deployment.site import Identity, OwnMachine
from consort.deployment.site_log import SiteLog
from consort.deployment.study import digest
from consort.engines.host import ClientHost
from consort.engines.middleware import bytes_by_role
from consort.engines.states import StateStore
from consort.errors import ConsortError, Refused, Tellable
from consort.experiment.recipe import Recipe

Message = Describe | Initial | Ask
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
    """The only recipe that the client accepts; `None` accepts what the policy allows."""
    say: Callable[[str], Any] = print
    policy: Policy = field(default_factory=Policy)
    """What a server may ask for."""
    studies: Studies | None = None
    """What the owner said to studies; without it, he cannot be asked."""
    record: SiteLog | None = None
    """What was asked and answered."""
    ledger: Path | None = None
    """The file of the privacy ledger; by default one in `folder`."""
    identity: Identity | None = None
    """Signs what other clients rely on; `None` signs and checks nothing."""
    _session: str = field(default="", init=False)
    _invitation: Invitation | None = field(default=None, init=False)
    _enrolment: Enrolment | None = field(default=None, init=False)
    _companion: Table | None = field(default=None, init=False)
    _host: ClientHost | None = field(default=None, init=False)
    _refused: tuple[Any, ...] = field(default=(), init=False)

    def answer(self, parts: Parts) -> Parts:
        """The reply to a message; errors are replies as well.

        Args:
            parts: The parts of the message, as bytes.

        Returns:
            The parts of the reply.
        """
        arrived = time.monotonic()
        about: dict[str, Any] = {}
        try:
            message = read_message(parts.get("header"))
            about |= _about(message)
            answer = self._answer(message, parts, arrived, about)
            self._note("answered", about | {"answer": _digest(answer.content)})
        except Exception as error:
            answer = self._failed(error, traceback.format_exc(), about)
        return answer.parts

    def _answer(
        self, message: Message, parts: Parts, arrived: float, about: dict[str, Any]
    ) -> Answer:
        known = self._accept(message.session, message.number)
        if message.known and not known:
            raise Tellable("its state of this run is gone: start the run again in a new --out")
        invitation = self._invited(message)
        with permitting(invitation.judge):
            enrolled = self._enrol(invitation, message.told)
            if isinstance(message, Describe):
                return self._sent(self._described(enrolled))
            if message.companion is not None:
                self._accompany(invitation, message.companion)
            if isinstance(message, Initial):
                weights = enrolled.initial(message.companion, message.draw)
                about |= _disclosed({"model": weights})
                return self._sent({"model": weights})
            return self._call(enrolled, message, parts, arrived, about)

    def _accept(self, session: str, number: int) -> bool:
        """Refuses repeated and outdated messages; returns whether the run is known here."""
        if session != self._session:
            self._session, self._host, self._companion = session, None, None
        path = self.folder / session / _LAST
        last = int(path.read_text()) if path.exists() else 0
        if not last:
            self._forget_old_runs()
        if number <= last:
            raise Refused(f"message {number} is repeated or outdated: {last} was already answered")
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_file(path, str(number).encode(), durable=True)
        return last > 0

    def _forget_old_runs(self) -> None:
        """Deletes the state of runs without messages in the last 30 days."""
        oldest = time.time() - _KEPT_DAYS * 86_400
        for path in self.folder.glob(f"*/{_LAST}"):
            if path.stat().st_mtime < oldest:
                shutil.rmtree(path.parent)

    def _invited(self, message: Message) -> Invitation:
        """The study of a message, checked unless it has been checked already."""
        if self._invitation is None or message.study.digest != self._invitation.study.digest:
            self._invitation = self._enrolment = self._host = self._companion = None
            self._invitation = Invitation.of(
                message.study, self.policy, self.agreed, self.name, self.brings, self.data
            )
        return self._invitation

    def _enrol(self, invitation: Invitation, told: str | None) -> Enrolment:
        """Joins a study that is approved of, unless it has been joined already."""
        if self.agreed is None:
            invitation.check_approved(self.policy, self.studies, self.say)
        if self._enrolment is None:
            study, hash = invitation.study, invitation.entry.hash
            self._enrolment = invitation.enrolment()
            self._note("joined", {"study": study.digest} | invitation.entry.facts)
            self.say(f"joined {study.algorithm}, seed {study.seed}, study {hash[:8]}")
            self._enrolment.recipe.compute.apply()
            log("joined", algorithm=study.algorithm, study=study.digest[:8])
        refuse_without_noise(self._enrolment.federation.protections, self.policy.privacy)
        if told is not None and told != digest(self._described(self._enrolment)):
            raise Tellable(
                "its data, model, tasks or training settings have changed since the run began"
            )
        return self._enrolment

    def _accompany(self, invitation: Invitation, companion: Table) -> None:
        """Checks the companion model that the server has chosen; it is the same in a whole run."""
        if self._companion is None:
            invitation.check_companion(companion, self.policy)
            self._companion = companion
        elif companion != self._companion:
            raise Refused("the companion model is another one than before")

    def _call(
        self, enrolled: Enrolment, message: Ask, parts: Parts, arrived: float, about: dict[str, Any]
    ) -> Answer:
        """The answer to a call, or to the same call as before."""
        last = LastAnswer(self.folder / self._session / "last-answer")
        question = question_digest(message, parts)
        answer = last.to(question)
        if answer is None:
            answer = self._computed(enrolled, message, parts, about | {"question": question})
            last.keep(question, answer)
        else:
            about["again"] = True
        about |= {"question": question} | _disclosed(decode(answer.content))
        _, method, round_, _, _ = message.call
        if time.monotonic() - arrived > message.seconds:
            self.say(f"round {round_}: the answer was too late and is not sent")
            log("late", logging.WARNING, round=round_, method=method)
            return Answer(error="was too late", late=True)
        self.say(f"round {round_}: {method} answered in {answer.seconds:.1f} s")
        seconds = milliseconds(answer.seconds)
        log("answered", round=round_, method=method, seconds=seconds, bytes=len(answer.content))
        return answer

    def _computed(
        self, enrolled: Enrolment, message: Ask, parts: Parts, about: dict[str, Any]
    ) -> Answer:
        payload = decode(parts["shared"]) | decode(parts["own"])
        call = Call.from_header(message.call, payload)
        if call.client != self.name:
            raise Refused(f"the call is for {call.client}")
        if not 1 <= call.round <= enrolled.recipe.run.rounds:
            raise Refused(f"the study has no round {call.round}")
        self._note("asked", about | {"down": bytes_by_role(tensors_in(payload))})
        host = self._hosted(enrolled, message.companion)
        host.store.go_back(self.name, message.counted)
        (reply,) = host.answer([call])
        if reply.error:
            cause = reply.error.__cause__ or reply.error
            cause.add_note(reply.error.traceback)
            raise cause
        if not call.evaluation:
            host.store.answered(self.name, call.stamp)
        return self._sent(reply.content, reply.seconds, reply.flops)

    def _sent(self, content: Payload, seconds: float = 0.0, flops: int = 0) -> Answer:
        data = encode(content)
        self.policy.check_bytes(len(data), "its answer")
        return Answer(data, seconds=seconds, flops=flops)

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
                schedule.tuning,
                site=self._site(enrolled),
            )
        return self._host

    def _described(self, enrolled: Enrolment) -> dict[str, Any]:
        """What the client tells about itself; its policy may make counts less exact."""
        return self.policy.counts.description(enrolled.description)

    def _site(self, enrolled: Enrolment) -> OwnMachine:
        """What the client keeps to itself in this run; the ledger has an entry for it from now."""
        limit = self.policy.privacy
        file = Path(limit.ledger) if limit and limit.ledger else self.ledger or self.folder / FILE
        data = (limit and limit.data) or name_of_data(self.brings, self.data)
        account = Account(PrivacyLedger(file), data, self._session, limit)
        noisy = has_noise(enrolled.federation.protections)
        account.ledger.begin(data, self._session, enrolled.study.algorithm, noisy, limit)
        return OwnMachine(
            self.folder / self._session,
            account,
            self.policy.counts,
            self.identity,
            self.policy.limits.hidden_among,
        )

    def _failed(self, error: Exception, trace: str, about: dict[str, Any]) -> Answer:
        """Tells the server of an error: its text if it may be told, otherwise only its kind.

        What is repeated, because the server asks again and again, is said and noted once.
        """
        kind = type(error).__name__
        told = str(error) if isinstance(error, Tellable) else f"{kind} (see the client's own log)"
        if _DISK_FULL in str(error):
            told = "its disk is full"
        same = (about.get("session"), about.get("kind"), about.get("study"), str(error))
        if same != self._refused:
            self._refused = same
            self.say(f"refused: {error}" if isinstance(error, ConsortError) else trace)
            if isinstance(error, ConsortError):
                log("refused", logging.WARNING, kind=kind, reason=str(error))
            else:
                log("failed", logging.ERROR, kind=kind)
            try:
                self._note("refused", about | {"reason": told})
            except (OSError, ConsortError) as failure:
                self.say(f"the log cannot be written: {failure}")
        return Answer(error=told)

    def _note(self, event: str, about: dict[str, Any]) -> None:
        if self.record is not None:
            self.record.add(event, **about)


def _about(message: Message) -> dict[str, Any]:
    """What the log says about a message."""
    found = {
        "session": message.session,
        "message": message.number,
        "study": message.study.digest,
        "kind": message.kind,
    }
    if isinstance(message, Ask):
        found |= dict(zip(("client", "method", "round", "step", "turn"), message.call, strict=True))
    return found


def _disclosed(content: Payload) -> dict[str, Any]:
    """What the log says about the content of an answer."""
    epsilon = {"epsilon": content["epsilon"]} if "epsilon" in content else {}
    return {"up": bytes_by_role(tensors_in(content))} | epsilon


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()
