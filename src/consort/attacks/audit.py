"""Attacks on what a finished run really sent, whatever its algorithm is."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from consort.attacks.membership import Membership
from consort.attacks.recovery import Recovery
from consort.attacks.shadows import membership
from consort.attacks.similarity import Perceptual
from consort.attacks.traffic import Update, last_traffic, params_in, updates, whole_models
from consort.attacks.victim import Victim
from consort.core.messages import Call, Reply
from consort.core.params import Params
from consort.core.wire import tensors_in
from consort.data.dataset import as_is
from consort.data.examples import Examples
from consort.domains.fingerprints.obfuscation import FpDfsn
from consort.engines.middleware import bytes_by_role
from consort.errors import Failure
from consort.experiment.opening import OpenedRun, open_run
from consort.federation.federation import Federation
from consort.models.multitask import MultiTaskModel
from consort.run.run import Run
from consort.training.local import LocalTraining
from consort.use.trained import reported_model

VICTIMS = 2
"""Clients that are attacked, the first ones; the others send the same kinds of messages."""
STEPS = 300
"""Of every inversion."""

Told = dict[str, Membership | str] | str


@dataclass(frozen=True)
class Sent:
    """One entry of a client's answer."""

    method: str
    entry: str
    kind: str
    roles: dict[str, int]
    """Bytes by role; plain numbers count as nothing."""


@dataclass(frozen=True)
class Finding:
    """What attackers got from one client; text where nothing could be tried, and why."""

    client: str
    sent: list[Sent]
    inversion: Recovery | str
    imprint: Recovery | str
    whose: str
    """Which model the membership of examples was guessed with."""
    membership: Told
    information: tuple[float, float] | str
    """Mutual information of pictures and features, and entropy of features, in bits."""
    rescaled: Recovery | None
    """Pictures from which obfuscation was divided away, if there was one."""


@dataclass(frozen=True)
class Audit:
    """All that was tried on a run."""

    folder: Path
    about: Mapping[str, Any]
    round: int
    same: bool
    """Whether the round that was overheard ended as it did in the run, bit for bit."""
    findings: list[Finding]


def audit(folder: Path, steps: int = STEPS, perceptual: Perceptual | None = None) -> Audit:
    """Overhears the last finished round of the run in a folder, and attacks its first clients."""
    opened = open_run(folder)
    run = opened.run
    chosen = run.federation.client_ids[:VICTIMS]
    traffic = last_traffic(run, chosen)
    findings = [attacked(opened, c, traffic.of(c), steps, perceptual) for c in chosen]
    return Audit(folder, opened.about, traffic.round, traffic.same, findings)


def attacked(
    opened: OpenedRun,
    client: str,
    heard: list[tuple[Call, Reply]],
    steps: int,
    perceptual: Perceptual | None,
) -> Finding:
    """Everything that is tried on one client."""
    run = opened.run
    federation, (way, clean) = _federation(run), _obfuscation(opened, client)
    blueprint = federation.blueprint(client)
    victim = Victim(
        client,
        blueprint.fresh,
        federation.members[client].tasks,
        federation.data(client),
        run.seed,
        clean,
        perceptual,
    )
    directions: list[Update] = []
    known = known_model(run, client, blueprint.params)
    for call, reply in heard:
        directions += updates(call, reply, known)
    model, whose = _exposed(run, victim, heard)
    algorithm = run.algorithm.with_local(federation.members[client].local)
    local = getattr(algorithm, "local", LocalTraining())
    return Finding(
        client,
        [sent for call, reply in heard for sent in described(call, reply)],
        victim.invert(directions, steps),
        victim.imprint(),
        whose,
        membership(victim, model, local),
        victim.information(model),
        victim.rescale(way, clean) if way and clean else None,
    )


def known_model(run: Run, client: str, initial: Params) -> Params:
    """What a client had before the last round, as far as all of its messages add up to it.

    What never leaves the client is taken for what it was at first.
    """
    reported = reported_model(run, client, back=1)
    if reported is None:
        return initial
    (model,) = params_in(Params.of(reported.model), initial)
    return initial | model.without(*run.algorithm.private)


def described(call: Call, reply: Reply) -> list[Sent]:
    """What a reply holds, entry by entry."""
    return [
        Sent(call.method, name, kind_of(value), bytes_by_role(tensors_in(value)))
        for name, value in reply.content.items()
    ]


def kind_of(value: Any) -> str:
    """What an entry of a message is, in words."""
    if isinstance(value, Params):
        return f"parameters of a model, {value.size:,} numbers"
    if isinstance(value, Tensor):
        return f"a tensor of {value.numel():,} numbers"
    if isinstance(value, Mapping | list | tuple):
        tensors = tensors_in(value)
        numbers = sum(tensor.numel() for _, tensor in tensors)
        return f"{len(tensors)} tensors, {numbers:,} numbers" if tensors else "numbers or text"
    if isinstance(value, str):
        return "text"
    return "nothing" if value is None else "a number"


def _federation(run: Run) -> Federation:
    table = run.algorithm.companion
    return run.federation if table is None else run.federation.accompanied(table)


def _exposed(
    run: Run, victim: Victim, heard: list[tuple[Call, Reply]]
) -> tuple[MultiTaskModel, str]:
    """The model that the client sent, or if it sent none, the one that it would hand out."""
    initial = Params.of(victim.fresh())
    for call, reply in heard:
        for sent in whole_models(call, reply, initial):
            model = copy.deepcopy(victim.fresh())
            sent.load_into(model)
            return model, "the model that the client sent"
    reported = reported_model(run, victim.client)
    if reported is None:
        raise Failure(f"{run.folder} holds no finished round: nothing can be audited")
    return reported.model, (
        "the model that the run reports: whoever is handed it can do this, "
        "even where no message of the client holds it"
    )


def _obfuscation(opened: OpenedRun, client: str) -> tuple[FpDfsn, Examples] | tuple[None, None]:
    """How a client obfuscates pictures, and its training pictures before that; or nothing."""
    seat = opened.seats.get(client)  # there is none of all clients in one
    if seat is None or not isinstance(seat.obfuscate, partial):
        return None, None
    return seat.obfuscate.func, replace(seat, obfuscate=as_is).load().train  # type: ignore[return-value]
