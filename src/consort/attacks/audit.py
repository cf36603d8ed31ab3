"""Attacks the messages that were sent in a finished run, for any algorithm."""

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
from consort.attacks.shadows import infer_membership
from consort.attacks.similarity import Perceptual
from consort.attacks.traffic import Update, complete_models, params_in, replay_last_round, updates
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
from consort.experiment.recipe import Obfuscation
from consort.experiment.trained import reported_model
from consort.federation.federation import Federation
from consort.models.multitask import MultiTaskModel
from consort.run.run import Run
from consort.training.local import LocalTraining

VICTIMS = 2
"""The number of clients to attack, from the first; the others send the same kinds of messages."""
STEPS = 300
"""The number of optimisation steps of an inversion."""

MembershipResults = dict[str, Membership | str] | str
"""The outcome of each membership attack; text says why one, or all, could not be tried."""


@dataclass(frozen=True)
class SentEntry:
    """One entry of a client's reply."""

    method: str
    entry: str
    kind: str
    roles: dict[str, int]
    """Bytes of tensors by role; plain numbers are not counted."""


@dataclass(frozen=True)
class ClientFinding:
    """What the attacks recovered from one client; text says why one could not be tried."""

    client: str
    sent: list[SentEntry]
    inversion: Recovery | str
    imprint: Recovery | str
    attacked_model: str
    """A description of the model that the membership attacks used."""
    membership: MembershipResults
    information: tuple[float, float] | str
    """Mutual information of images and features, and entropy of features, in bits."""
    rescaled: Recovery | None
    """Images recovered by undoing the obfuscation, if there was one."""


@dataclass(frozen=True)
class Audit:
    """The results of all attacks on a run."""

    folder: Path
    about: Mapping[str, Any]
    round: int
    reproduced: bool
    """Whether the repeated round ended in the same state as in the run, bit for bit."""
    findings: list[ClientFinding]


def audit(where: Path | Run, steps: int = STEPS, perceptual: Perceptual | None = None) -> Audit:
    """Repeats the last finished round of a run, and attacks the messages of its first clients.

    Args:
        where: The folder of the run; or the run itself, if it was made in Python.
        steps: The number of optimisation steps of an inversion.
        perceptual: An additional distance between images, such as LPIPS.

    Returns:
        The results.

    Raises:
        Failure: If no round is finished, or the state before it is gone.
    """
    opened = open_run(where)
    run = opened.run
    chosen = run.federation.client_ids[:VICTIMS]
    traffic = replay_last_round(run, chosen)
    findings = [attack_client(opened, c, traffic.of(c), steps, perceptual) for c in chosen]
    return Audit(opened.folder, opened.about, traffic.round, traffic.reproduced, findings)


def attack_client(
    opened: OpenedRun,
    client: str,
    exchanges: list[tuple[Call, Reply]],
    steps: int,
    perceptual: Perceptual | None,
) -> ClientFinding:
    """Carries out all attacks on one client.

    Args:
        opened: The run.
        client: The client to attack.
        exchanges: The calls and replies of this client in the last round.
        steps: The number of optimisation steps of an inversion.
        perceptual: An additional distance between images.

    Returns:
        The results.
    """
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
    for call, reply in exchanges:
        directions += updates(call, reply, known)
    model, attacked_model = _exposed(run, victim, exchanges)
    algorithm = run.algorithm.with_local(federation.members[client].local)
    local = getattr(algorithm, "local", LocalTraining())
    return ClientFinding(
        client,
        [sent for call, reply in exchanges for sent in describe_reply(call, reply)],
        victim.invert(directions, steps),
        victim.imprint(),
        attacked_model,
        infer_membership(victim, model, local),
        victim.information(model),
        victim.rescale(way, clean) if isinstance(way, FpDfsn) and clean else None,
    )


def known_model(run: Run, client: str, initial: Params) -> Params:
    """The weights of a client before the last round, as far as its messages reveal them.

    Args:
        run: The run.
        client: The client.
        initial: Its initial weights, which stand for parameters that never leave the client.
    """
    reported = reported_model(run, client, back=1)
    if reported is None:
        return initial
    (model,) = params_in(Params.of(reported.model), initial)
    return initial | model.without(*run.algorithm.private)


def describe_reply(call: Call, reply: Reply) -> list[SentEntry]:
    """Lists the entries of a reply."""
    return [
        SentEntry(call.method, name, describe_value(value), bytes_by_role(tensors_in(value)))
        for name, value in reply.content.items()
    ]


def describe_value(value: Any) -> str:
    """Describes an entry of a message in words."""
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
    run: Run, victim: Victim, exchanges: list[tuple[Call, Reply]]
) -> tuple[MultiTaskModel, str]:
    """The model that the client sent, or if it sent none, the one that the run reports."""
    initial = Params.of(victim.initial_model())
    for call, reply in exchanges:
        for sent in complete_models(call, reply, initial):
            model = copy.deepcopy(victim.initial_model())
            sent.load_into(model)
            return model, "the model that the client sent"
    reported = reported_model(run, victim.client)
    if reported is None:
        raise Failure(f"{run.folder}: no round is finished yet, there is nothing to audit")
    return reported.model, (
        "the model that the run reports: whoever receives this model can carry out the attack, "
        "even if no message of the client contains it"
    )


def _obfuscation(
    opened: OpenedRun, client: str
) -> tuple[Obfuscation, Examples] | tuple[None, None]:
    """A client's obfuscation, and its training examples before it; `None` without one."""
    seat = opened.seats.get(client)  # there is none for all clients pooled into one
    if seat is None or not isinstance(seat.obfuscate, partial):
        return None, None
    return seat.obfuscate.func, replace(seat, obfuscate=as_is).load().train
