"""The page of an audit: what left the clients, and what attackers make of it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

from consort.attacks.audit import Audit, Finding, Told
from consort.attacks.membership import ENOUGH, Membership
from consort.attacks.recovery import Recovery
from consort.report.document import write_page
from consort.report.gallery import gallery
from consort.report.html import Cell, Content, Html, details, join, table, tag, tiles
from consort.report.numbers import UNKNOWN, count, natural, score
from consort.results.result import Result
from consort.results.table import spent

NO_GUARANTEE = (
    "Nothing is guaranteed. This run has no differential privacy: no update was clipped and given "
    "noise with an account of what was spent, so there is no ε and no δ. That an attack failed "
    "here says that this attack failed; a better one, more rounds, or somebody who knows more may "
    "succeed."
)
_GUARANTEE = (
    "Differential privacy, counted by {level}: whoever sees all that was sent learns about any one "
    "{level} hardly more than if it had not taken part, in the sense of ε = {epsilon:.3g} at "
    "δ = {delta:.1g} for the client that has spent most. This holds against those who do not know "
    "the seed of the run, from which the noise is drawn. The larger ε, the less it says."
)
_HOW = (
    "The last finished round was made once more from the state before it, while somebody listened "
    "at the server. "
)
_SAME = "It ended in the very state that the run had kept, bit for bit: this is what was sent."
_OTHER = (
    "It did not end in the state that the run had kept (another machine, or other versions?): "
    "messages of the run were of this kind, but not these."
)
_INVERSION = (
    "An attacker who sees a client's messages looks for examples whose gradient has the direction "
    "of its update. It is given more than a real one has: the labels of eight "
    "examples, mixed as the client's are. It "
    "takes the whole local training for one step, which is wrong, and the more so the more steps "
    "there were. The blind guess is the mean of test examples: whoever is not nearer to the "
    "originals has learnt nothing from the messages."
)
_IMPRINT = (
    "This did not happen in the run. A malicious server could hand out a model with a layer of its "
    "own in front, which sorts examples by their mean into bins; one step on a batch then gives "
    "every example away that is alone in its bin. Clients refuse parameters that their model does "
    "not have, but a client that takes its model's architecture from the server is open to this."
)
_MEMBERSHIP = (
    "Training examples tend to have smaller losses than test examples. An attacker that holds the "
    "model tells them apart by the loss, by the loss within a class, and by how much smaller it is "
    "than that of a reference model of the same kind that was trained on validation data, or of "
    "several shadow models. AUC 0.5 and advantage 0 are chance. In brackets stands where the AUC "
    "may lie, 95 times out of 100: an interval that holds 0.5 tells nothing."
)
_FEW = (
    f"too few examples to tell: at least {ENOUGH} of each kind must be judged, half of those there "
    "are"
)
_INFORMATION = (
    "As papers report them, from histograms. Lower numbers are not by themselves more private."
)
_RESCALE = (
    "The run's pictures were obfuscated before training. Outside the patches around minutiae one "
    "division brings them back; the blind guess is the obfuscated picture as it is."
)


def write_audit(audit: Audit, result: Result, path: Path) -> Path:
    """Writes all findings into one self-contained HTML file."""
    about = audit.about
    sections: dict[str, Content] = {
        "Summary": _summary(audit, result),
        "What left the clients": _left(audit, result),
        "What updates give away": _recovered(audit, "inversion", _INVERSION),
        "A malicious server": _recovered(audit, "imprint", _IMPRINT),
        "Who was trained on": _membership(audit.findings),
        "Mutual information": _information(audit.findings),
        "Obfuscation undone": _rescaled(audit.findings),
        "Guarantees": tag("p", _guarantee(audit, result)),
    }
    title = f"Audit: {about['title'] or about['algorithm']}"
    subtitle = f"{about['algorithm']}, seed {about['seed']}, round {audit.round}"
    return write_page(path, title, subtitle, sections)


def _summary(audit: Audit, result: Result) -> Html:
    inverted = [f.inversion for f in audit.findings if isinstance(f.inversion, Recovery)]
    tried = sum(len(found.scores) for found in inverted)
    facts = [
        ("Sent by clients", _size(sum(result.bytes("up").values())), "in all rounds together"),
        (
            "Recovered from updates",
            f"{sum(f.recognised for f in inverted)} of {tried}" if tried else "not possible",
            "examples looked for in two clients' messages that came out recognisably"
            if tried
            else "nothing that inputs can be computed from was sent",
        ),
        ("Membership", *_best(_told(audit.findings))),
        ("Guarantee", *_tile(audit, result)),
    ]
    how = _HOW + (_SAME if audit.same else _OTHER)
    return join([tiles(facts), tag("p", _guarantee(audit, result)), tag("p", how, class_="note")])


def _epsilon(audit: Audit, result: Result) -> float:
    """What was spent; infinite where nothing is guaranteed."""
    return spent(result) if audit.about.get("privacy") and "epsilon" in result.noted else math.inf


def _guarantee(audit: Audit, result: Result) -> str:
    epsilon = _epsilon(audit, result)
    if math.isinf(epsilon):
        return NO_GUARANTEE
    privacy = audit.about["privacy"]
    return _GUARANTEE.format(level=privacy["level"], epsilon=epsilon, delta=privacy["delta"])


def _tile(audit: Audit, result: Result) -> tuple[str, str]:
    epsilon = _epsilon(audit, result)
    if math.isinf(epsilon):
        return "none", "no differential privacy: see the end of this page"
    return f"ε = {epsilon:.3g}", "differential privacy: see the end of this page"


def _best(told: list[Membership]) -> tuple[str, str]:
    """The figure of the attack that tells most, and what it means."""
    best = max((one for one in told if one.tells), key=lambda one: one.auc, default=None)
    if best is not None:
        return f"AUC {_area(best, 2)}", "of the best of the attacks; 0.5 is chance"
    return UNKNOWN, _FEW if told else "could not be tried"


def _area(told: Membership, digits: int) -> str:
    """The area under the curve, and where it may lie."""
    low, high = told.interval
    return f"{told.auc:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def _told(findings: Iterable[Finding]) -> list[Membership]:
    return [
        told
        for finding in findings
        if not isinstance(finding.membership, str)
        for told in finding.membership.values()
        if isinstance(told, Membership)
    ]


def _left(audit: Audit, result: Result) -> Html:
    roles = list(result.bytes("up"))
    columns = {role: result.bytes("up", "client", role) for role in roles}
    clients = sorted(result.bytes("up", "client"), key=natural)
    if not clients:
        return join([tag("p", "No client sent a single tensor."), _entries(audit)])

    def of(role: str, client: str) -> Cell:
        size = columns[role].get(client, 0)
        return Cell(_size(size), size)

    shown = {"client": lambda client: client} | {
        role: (lambda client, role=role: of(role, client)) for role in roles
    }
    note = "Tensors sent in all rounds, by the part of the model; plain numbers are not counted."
    return join([table(clients, shown, note), _entries(audit)])


def _entries(audit: Audit) -> Html:
    rows = [(finding.client, sent) for finding in audit.findings for sent in finding.sent]
    if not rows:
        return tag("p", f"In round {audit.round} the clients looked at answered nothing.")
    listing = table(
        rows,
        {
            "client": lambda row: row[0],
            "asked to": lambda row: row[1].method,
            "entry": lambda row: row[1].entry,
            "what it is": lambda row: row[1].kind,
            "parts": lambda row: ", ".join(row[1].roles) or UNKNOWN,
            "bytes": lambda row: count(sum(row[1].roles.values())),
        },
    )
    return details(f"Every entry of the answers in round {audit.round}", listing, unfolded=True)


def _recovered(audit: Audit, what: str, explanation: str) -> Html:
    parts: list[Content] = [tag("p", explanation)]
    for finding in audit.findings:
        found: Recovery | str = getattr(finding, what)
        parts.append(tag("h3", finding.client))
        if isinstance(found, str):
            parts.append(tag("p", found))
        else:
            parts += [tag("p", _verdict(found)), gallery(found)]
    return join(parts)


def _verdict(found: Recovery) -> str:
    fit = "" if math.isnan(found.cosine) else f"; cosine to the update {found.cosine:.2f}"
    distance = f"{found.gain:.1f} dB nearer" if found.gain > 0 else "no nearer"
    return (
        f"{len(found.scores)} found for {found.sought} originals, {found.recognised} of them "
        f"recognisable; on average {distance} than the blind guess{fit}."
    )


def _membership(findings: Iterable[Finding]) -> Html:
    parts: list[Content] = [tag("p", _MEMBERSHIP)]
    for finding in findings:
        parts.append(tag("h3", finding.client))
        parts.append(tag("p", f"Guessed with {finding.whose}.", class_="note"))
        parts.append(_attacks(finding.membership))
    return join(parts)


def _attacks(told: Told) -> Html:
    if isinstance(told, str):
        return tag("p", told)
    reasons = [found for found in told.values() if isinstance(found, str)]
    rows = [(name, found) for name, found in told.items() if isinstance(found, Membership)]
    listing = table(
        rows,
        {
            "told by": lambda row: row[0],
            "AUC": lambda row: Cell(_area(row[1], 3), row[1].auc),
            "advantage": lambda row: score(row[1].advantage),
            "members": lambda row: count(row[1].members),
            "others": lambda row: count(row[1].others),
        },
    )
    if not all(found.tells for _, found in rows):
        reasons.append(f"These are {_FEW}.")
    return join([listing, *(tag("p", reason, class_="note") for reason in reasons)])


def _information(findings: Iterable[Finding]) -> Html:
    parts: list[Content] = [tag("p", _INFORMATION)]
    for finding in findings:
        found = finding.information
        text = (
            found
            if isinstance(found, str)
            else f"a feature tells {found[0]:.3f} bits of a field of its picture (more than of "
            f"others' pictures); features have {found[1]:.2f} of 8 bits"
        )
        parts.append(tag("p", tag("b", finding.client), f": {text}"))
    return join(parts)


def _rescaled(findings: Iterable[Finding]) -> Html | None:
    found = [(f.client, f.rescaled) for f in findings if f.rescaled is not None]
    if not found:
        return None
    parts = [join([tag("h3", client), gallery(recovery)]) for client, recovery in found]
    return join([tag("p", _RESCALE), *parts])


def _size(number: int) -> str:
    """Bytes in the unit that fits."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number:,} B"
